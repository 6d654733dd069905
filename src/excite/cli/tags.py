"""``excite tags``: from a raw corpus of tagged images to one worth learning from, and to its statistics."""

import re
import resource
import shlex
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from excite.cli.console import complain, note, print_columns, progress, say, say_json
from excite.cli.options import Columns, CorpusArgument, JobOptions, RawCorpusArgument, columns_of, gone, group, grouped
from excite.errors import visible

app = group("Clean a corpus of images with tags, and look at its dictionary.")
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

CLEAN_EXAMPLES = """\b
Examples:
  excite tags clean raw.parquet --out kept.parquet                     as in the paper's appendix
  excite tags clean raw.csv --out kept.parquet --columns image=url,tags=keywords,user=owner --min-count 50
  excite tags clean raw.parquet --out kept.parquet --choices           and what other thresholds would cost
  excite tags stats kept.parquet                                       what is in it
  excite train tags kept.parquet --pictures photos --out classifier    learn it
"""


@app.command("clean", epilog=CLEAN_EXAMPLES)
@grouped
def clean_command(
    *,
    corpus: RawCorpusArgument,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The Parquet file for what is kept; others lie beside it.")],
    min_count: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="A tag seen at least so often is in the dictionary; 1000 of 17 million images, as in the paper, and "
            "for fewer images less.",
        ),
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=1, metavar="K", help="Only the K most frequent tags are in the dictionary.")
    ] = None,
    min_tags: Annotated[int, typer.Option(min=0, help="An image with fewer tags is dropped.")] = 5,
    keep_alphabetical: Annotated[
        bool, typer.Option("--keep-alphabetical", help="Keep images whose tags stand in alphabetical order.")
    ] = False,
    keep_similar: Annotated[
        bool, typer.Option("--keep-similar", help="Keep images that begin like another one of the same user.")
    ] = False,
    first: Annotated[int, typer.Option(min=1, max=20, help="How many first tags are compared.")] = 5,
    overlap: Annotated[int, typer.Option(min=0, help="Images that share more of them are similar.")] = 3,
    against: Annotated[
        str, typer.Option(metavar="seen|kept", help="Compare with all earlier images of the user, or kept ones only.")
    ] = "seen",
    plurals: Annotated[bool, typer.Option("--plurals", help="Fold English plurals: cats and cat are one tag.")] = False,
    columns: Columns = None,
    choices: Annotated[bool, typer.Option("--choices", help="Also report what other thresholds would keep.")] = False,
    jobs: JobOptions,
    as_json: AsJson = False,
) -> None:
    """Keep the images of a tag corpus that are worth learning from, and take its dictionary.

    Dropped are images with fewer than five tags, those whose tags stand in alphabetical order, and those whose first
    five tags share more than three with an earlier image of the same user. Every dropped image is listed with its
    reason. A stopped run is resumed.
    """
    from excite.tags.cleaning import CleaningRun
    from excite.tags.dictionary import TagNormaliser
    from excite.tags.rules import Rules

    started = time.monotonic()
    cleaning = CleaningRun(
        source=corpus,
        out=out,
        rules=Rules(min_count or 0, top, min_tags, not keep_alphabetical, not keep_similar, first, overlap, against),
        normaliser=TagNormaliser(plurals=plurals),
        columns=columns_of(columns, users_needed=False),
        workers=jobs.executor(),
        progress=progress,
        variants=choices,
    )
    report = cleaning.clean()
    report["seconds"] = round(time.monotonic() - started, 1)
    own, largest = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    report["peak_mb"] = (own + (jobs.workers or 1) * largest) // 1024  # at most: the peaks of all processes together
    report["files"] = [str(out), *(str(out.with_suffix(end)) for end in (".tags.csv", ".dropped.parquet"))]
    say_json(report) if as_json else _print_clean(report)
    if not report["users"] and not keep_similar:
        note("images of the same user were not compared: no users are named, see --columns user=COLUMN")
    least = report["rules"]["least_count"]
    if min_count is None:
        note(f"tags listed at least {least} times are in the dictionary, by the number of images: see --min-count")
    if not report["tags"]:
        note(f"no tag is listed {least} times: give a lower --min-count")


def _print_clean(report: dict[str, Any]) -> None:
    say(f"{report['kept']:,} of {report['read']:,} images are kept; dropped:")
    for rule, number in report["dropped"].items():
        say(f"  {number:>12,}  {rule.replace('_', ' ')}")
    say(
        f"{report['tags']:,} tags in the dictionary, of {report['different_tags']:,} different ones; "
        f"{report['seconds']:.0f} s, at most {report['peak_mb']:,} MB"
    )
    changed = ", ".join(f"{number:,} {how.replace('_', ' ')}" for how, number in report["changed"].items())
    say(f"tags changed: {changed or 'none'} (of {report['listed_tags']:,} listed)")
    say(f"written: {', '.join(report['files'])}")
    say(f"next: excite tags stats {shlex.quote(report['files'][0])}", dim=True)


CAPTIONS_EXAMPLES = """\b
Examples:
  excite tags captions captions_val2017.json --out corpus.parquet       the words of COCO's captions as tags
  excite tags captions results_20130124.token --out corpus.parquet      Flickr30k's
  excite tags captions captions.csv --out corpus.parquet --no-plurals   columns image and caption; dog and dogs differ
  excite tags captions captions.jsonl --out corpus.parquet --stop-words mine.txt --json
"""


@app.command("captions", epilog=CAPTIONS_EXAMPLES)
def captions_command(
    captions: Annotated[
        Path, typer.Argument(metavar="FILE", help="COCO's captions (.json), .jsonl, .csv, .tsv, .token, .txt; or .gz.")
    ],
    out: Annotated[Path, typer.Option(help="The corpus: a Parquet file with the columns image, tags, user.")],
    plurals: Annotated[
        bool, typer.Option("--plurals/--no-plurals", help="Make English plurals singular: dogs become dog.")
    ] = True,
    stop_words: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Words that are no tags, one a line, instead of excite's own.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Convert captions to tags: the words of an image's captions, those in most of them first."""
    from excite.tags.captions import captions_to_corpus, read_stop_words
    from excite.vocabulary.word_lists import STOP_WORDS

    words = STOP_WORDS if stop_words is None else read_stop_words(stop_words)
    answer = captions_to_corpus(captions, out, plurals=plurals, stop_words=words)
    answer["file"] = str(out)
    if as_json:
        say_json(answer)
        return
    say(
        f"{answer['pictures']} images with {answer['captions']} captions: {answer['words']} tags, "
        f"{answer['distinct']} different ones"
    )
    if answer["skipped"]:
        reasons = ", ".join(f"{count} {reason}" for reason, count in answer["skipped"].items())
        say(f"skipped: {reasons}")
    say(f"written: {answer['file']}")


STATS_EXAMPLES = """\b
Examples:
  excite tags stats kept.parquet                                      how many tags, how often, which ones
  excite tags stats raw.parquet --min-count 1000 --out stats          the dictionary, its curve and its word cloud
  excite tags stats kept.parquet --out stats --pictures photos        and example images with their tags
  excite tags stats kept.parquet --dictionary kept.tags.csv --measures classifier/measures.csv --json
"""
EXAMPLES_SHOWN, SPARE = 12, 3  # images, and how many may be tried for each: some are gone
LONGEST_SHOWN = 60  # characters of a tag
FOR_CLOUD = 1000  # tags of which the first that can be drawn are
MEANINGS = {"named": "words for what a classifier knows", "learnt": "found 5 times as precisely as by chance"}


@app.command("stats", epilog=STATS_EXAMPLES)
def stats_command(
    corpus: CorpusArgument,
    dictionary: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The tags to judge: a CSV file tag,count; all tags if none.")
    ] = None,
    min_count: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The tags to judge: those listed at least so often.")
    ] = None,
    measures: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The measures.csv of a trained tag classifier.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write stats.json, frequency.png, cloud.png and more there.")
    ] = None,
    pictures: Annotated[
        str | None, typer.Option(metavar="ROOT", help="Where the images lie; draws examples.png, too.")
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="How many of the most frequent tags to list.")] = 30,
    columns: Columns = None,
    as_json: AsJson = False,
) -> None:
    """Count images, users and tags, and report the coverage of a dictionary and the share of visual words.

    Visual words are counted in two ways. "named": words for something that a classifier of excite knows (labels of
    ImageNet and COCO); misses colours, places and weather. "learnt", with --measures: tags that a trained classifier
    finds at least 5 times as precisely as by chance. One pass; memory grows with distinct tags and users only.
    """
    from excite.io.files import save_json, save_png
    from excite.models.architectures import embedded_labels
    from excite.tags import figures, package, statistics
    from excite.tags.corpus import Corpus
    from excite.tags.dictionary import Dictionary
    from excite.tags.images import open_images

    if dictionary is not None and min_count is not None:
        raise typer.BadParameter("--dictionary already says which tags: leave --min-count out")
    if pictures is not None and out is None:
        raise typer.BadParameter("--pictures draws a figure: give its folder with --out")
    started = time.monotonic()
    if out is not None:
        for name in ("matplotlib", "wordcloud"):  # before the work
            package(name)
    images = None if pictures is None else open_images(pictures)
    learnt = None if measures is None else statistics.learnt_tags(measures)
    given = None if dictionary is None else Dictionary.read(dictionary)
    rows = Corpus(corpus, columns_of(columns, users_needed=False))
    counted = statistics.statistics_of(rows, progress(rows.row_groups, len(rows.row_groups), "row groups"))
    judged = counted.at_least(min_count or 1) if given is None else counted.counted(given.tags)
    named = partial(statistics.is_named, words=statistics.known_words(embedded_labels("everyday")))
    thresholds = [*([] if min_count is None else [min_count]), *statistics.THRESHOLDS]  # the first is drawn in any case
    most = counted.most_frequent(top)
    answer = counted.summary(thresholds) | {
        "dictionary": {
            "tags": len(judged),
            "covers": sum(judged.counts) / counted.listed if counted.listed else None,
            "never_listed": sum(count == 0 for count in judged.counts),
        },
        "visual": {"named": statistics.visual_share(judged, named)},
        "top": [
            {"rank": rank, "tag": tag, "count": count, "a_picture": count / counted.pictures, "named": named(tag)}
            for rank, (tag, count) in enumerate(zip(most.tags, most.counts, strict=True), 1)
        ],
    }
    if learnt is not None:
        answer["visual"]["learnt"] = statistics.learnt_share(judged, learnt)
    failures: list[str] = []
    if out is not None:
        files = [] if min_count is None else [judged.save(out / "dictionary.csv")]
        curve = figures.frequency_figure(counted.counts, thresholds, answer["zipf_slope"], out / "frequency.png")
        files += [curve, out / "cloud.png"]
        answer["cloud"] = figures.cloud_figure(counted.most_frequent(FOR_CLOUD), named, files[-1])
        if images is not None:
            sample = figures.sample_rows(rows, SPARE * EXAMPLES_SHOWN)
            tagged, failures = figures.read_images(sample, images, EXAMPLES_SHOWN)
            title = f"{corpus.name}: {len(tagged)} of {rows.rows:,} images with their first five tags"
            files.append(save_png(figures.contact_sheet(tagged, title), out / "examples.png"))
        answer["unreadable_pictures"] = len(failures)
        answer["files"] = [str(file) for file in [*files, out / "stats.json"]]
        save_json(answer, out / "stats.json")
    answer["seconds"] = round(time.monotonic() - started, 1)
    say_json(answer) if as_json else _print_stats(answer, corpus)
    if failures:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        note(f"left out of the figure: {failures[0]}{more}")


def _print_stats(answer: dict[str, Any], corpus: Path) -> None:
    for line in _lines(answer):
        say(line)
    say()
    thresholds = ("listed at least", "tags", "of all listed")
    print_columns(
        [
            dict(zip(thresholds, (f"{one['at_least']:,}", f"{one['tags']:,}", percent(one["covers"])), strict=True))
            for one in answer["thresholds"]
        ]
    )
    if answer["top"]:
        say()
        print_columns([_row(one) for one in answer["top"]])
    if "files" in answer:
        say(f"written: {', '.join(answer['files'])}")
    say(f"next: excite train tags {shlex.quote(str(corpus))} --pictures ROOT --out classifier", dim=True)


def _row(one: dict[str, Any]) -> dict[str, str]:
    tag = one["tag"]
    return {
        "rank": str(one["rank"]),
        "tag": visible(tag if len(tag) <= LONGEST_SHOWN else tag[: LONGEST_SHOWN - 1] + "..."),
        "listed": f"{one['count']:,}",
        "an image": f"{one['a_picture']:.3f}",
        "named": "yes" if one["named"] else "",
    }


def _lines(answer: dict[str, Any]) -> Iterator[str]:
    tags, owned, single = answer["tags_a_picture"], answer["pictures_a_user"], answer["unigrams"]
    unknown, blank = answer["pictures_without_user"], answer["blank_tags"]
    yield (
        f"{answer['pictures']:,} images of {answer['users']:,} users"
        + (f" ({unknown:,} images without a user)" if unknown else "")
        + f"; {answer['tags_listed']:,} tags listed, {answer['distinct_tags']:,} distinct"
        + (f" ({blank:,} blank ones not counted)" if blank else "")
    )
    yield (
        f"tags an image: mean {tags['mean']:.1f}, median {tags['median']:g}, "
        f"quartiles {tags['lower']:g} and {tags['upper']:g}, from {tags['least']} to {tags['most']}"
    )
    if owned["most"] is not None:
        yield f"images a user: median {owned['median']:g}, at most {owned['most']:,}"
    distinct, listed = percent(single["of_distinct"]), percent(single["of_listed"])
    yield f"of one word: {distinct} of the distinct tags, {listed} of the listed ones"
    if answer["zipf_slope"] is not None:
        yield f"slope of the frequency curve over the ranks 10 to 1000: {answer['zipf_slope']:.2f} (Zipf's law: -1)"
    judged = answer["dictionary"]
    yield f"dictionary: {judged['tags']:,} tags, {percent(judged['covers'])} of all listed" + (
        f" ({judged['never_listed']:,} of its tags are never listed)" if judged["never_listed"] else ""
    )
    for name, share in answer["visual"].items():
        yield (
            f"visual words, {name} ({MEANINGS[name]}): {percent(share['of_tags'])} of {share['judged']:,} tags, "
            f"{percent(share['of_listed'])} of how often these are listed"
        )


def percent(share: float | None) -> str:
    """A share in percent."""
    return "-" if share is None else f"{100 * share:.1f} %"


SHARDS_EXAMPLES = """\b
Examples:
  excite tags shards kept.parquet --pictures photos --out shards              200 MB each
  excite tags shards kept.parquet --pictures photos --out shards --rows 10000
  excite tags shards kept.parquet --pictures . --urls --out shards            fetch images named by web addresses
"""

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
SIZE_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", re.IGNORECASE)


@app.command("shards", epilog=SHARDS_EXAMPLES)
def shards_command(
    corpus: CorpusArgument,
    pictures: Annotated[str, typer.Option(metavar="ROOT", help="Where its images lie: a folder, or other shards.")],
    out: Annotated[Path, typer.Option(help="The folder for the shards; a run that was stopped goes on there.")],
    size: Annotated[
        str | None, typer.Option(metavar="BYTES", help="A shard of this size is full, as 200MB or 1GB.")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, metavar="N", help="Images per shard, instead of a size.")] = None,
    urls: Annotated[
        bool, typer.Option("--urls", help="Fetch images that are named by web addresses: only for a corpus you trust.")
    ] = False,
    columns: Columns = None,
    as_json: AsJson = False,
) -> None:
    """Write the images of a corpus, with their tags, as tar files in the WebDataset layout.

    Images are copied as they are, in the order of the corpus. Those that cannot be read are left out and counted.
    """
    from excite.tags.corpus import Corpus
    from excite.tags.images import open_images
    from excite.tags.images.shards import SIZE, ShardWriter

    if size is not None and rows is not None:
        raise typer.BadParameter("--rows already limits a shard: leave --size out")
    room = None if rows is not None else SIZE if size is None else _bytes(size)
    read = Corpus(corpus, columns_of(columns, users_needed=False))
    writer = ShardWriter(read, open_images(pictures, urls=urls), out, room, rows, progress)
    shards = writer.write()
    answer: dict[str, Any] = {
        "read": sum(shard.end - shard.first for shard in shards),
        "written": sum(shard.pictures for shard in shards),
        **{name: sum(getattr(shard, name) for shard in shards) for name in ("bad", "repeated", "bytes")},
        "files": [str(out / shard.file) for shard in shards if shard.pictures],
    }
    if as_json:
        say_json(answer)
    else:
        repeated = f", {answer['repeated']} named before" if answer["repeated"] else ""
        say(
            f"{answer['written']} of {answer['read']} images in {len(answer['files'])} shards "
            f"({answer['bytes'] / 1e6:.1f} MB); {answer['bad']} could not be read{repeated}"
        )
        say(f"next: excite train tags CORPUS --pictures {shlex.quote(str(out))}", dim=True)
    for failure in writer.failures:
        complain(failure)
    if answer["bad"]:
        complain(f"{answer['bad']} of {answer['read']} images were left out, as above")


def _bytes(text: str) -> int:
    """A size in bytes, as of 200MB or 1.5 gb."""
    if (meant := SIZE_TEXT.fullmatch(text.strip())) is None or float(meant[1]) == 0:
        raise typer.BadParameter(f"--size {text!r} is no size: write it as 200MB or 1GB")
    return int(float(meant[1]) * UNITS[meant[2].upper()])


gone(app, "generate", "tags generate is a tool of the repository now: run `python dev/generate_tags.py` in a checkout")
gone(app, "show", "there is no tags show any more: ask duckdb, `WHERE list_contains(tags, 'TAG')`")

"""``excite tags stats``: statistics of a corpus."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from excite.cli.console import note, print_columns, progress, say, say_json
from excite.cli.options import Columns, CorpusArgument, columns_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from excite.tags.corpus import Corpus
    from excite.tags.dictionary import Dictionary
    from excite.tags.images import ImageSource
    from excite.tags.statistics import Statistics


STATS_EXAMPLES = """\b
Examples:
  excite tags stats kept.parquet                                      how many tags, how often, which ones
  excite tags stats raw.parquet --min-count 1000 --out stats          the dictionary, its curve and its word cloud
  excite tags stats kept.parquet --out stats --pictures photos        and example images with their tags
  excite tags stats kept.parquet --dictionary kept.tags.csv --measures classifier/measures.csv --json
"""
EXAMPLES_SHOWN, SPARE = 12, 3  # images, and how many may be tried for each: some are gone
FOR_CLOUD = 1000  # tags of which the first that can be drawn are
MEANINGS = {"named": "words for what a classifier knows", "learnt": "found 5 times as precisely as by chance"}


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
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Count images, users and tags, and report the coverage of a dictionary and the share of visual words.

    Visual words are counted in two ways. "named": words for something that a classifier of excite knows (labels of
    ImageNet and COCO); misses colours, places and weather. "learnt", with --measures: tags that a trained classifier
    finds at least 5 times as precisely as by chance. One pass; memory grows with distinct tags and users only.
    """
    from excite.io.files import save_json
    from excite.tags.corpus import Corpus
    from excite.tags.dictionary import Dictionary
    from excite.tags.statistics import THRESHOLDS, statistics_of
    from excite.tags.visual_words import learnt_tags

    if dictionary is not None and min_count is not None:
        raise typer.BadParameter("--dictionary already says which tags: leave --min-count out")
    started = time.monotonic()
    images = _image_source(pictures, out)
    learnt = None if measures is None else learnt_tags(measures)
    given = None if dictionary is None else Dictionary.read(dictionary)
    rows = Corpus(corpus, columns_of(columns, users_needed=False))
    counted = statistics_of(rows, progress(rows.row_groups, len(rows.row_groups), "row groups"))
    judged = counted.at_least(min_count or 1) if given is None else counted.counted(given.tags)
    is_named = _named_test()
    thresholds = [*([] if min_count is None else [min_count]), *THRESHOLDS]  # the first is drawn in any case
    answer = counted.summary(thresholds) | {
        "dictionary": _dictionary(judged, counted),
        "visual": _visual(judged, is_named, learnt),
        "top": _top(counted.most_frequent(top), counted, is_named),
    }
    failures: list[str] = []
    if out is not None:
        files = [] if min_count is None else [judged.save(out / "dictionary.csv")]
        figures, answer["cloud"] = _draw_stats(counted, thresholds, is_named, out)
        files += figures
        if images is not None:
            failures = _examples(rows, images, out / "examples.png")
            files.append(out / "examples.png")
        answer["unreadable_pictures"] = len(failures)
        answer["files"] = [str(file) for file in [*files, out / "stats.json"]]
        save_json(answer, out / "stats.json")
    answer["seconds"] = round(time.monotonic() - started, 1)
    say_json(answer) if as_json else _print_stats(answer, corpus)
    note_unreadable(failures)


def note_unreadable(failures: Sequence[str]) -> None:
    """Report images that could not be read and were replaced by others."""
    if failures:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        note(f"left out of the figure: {failures[0]}{more}")


def _image_source(pictures: str | None, out: Path | None) -> ImageSource | None:
    """The image source; fails before the work if a package for the figures is missing."""
    from excite.tags.figures import check_figures
    from excite.tags.images import open_images

    if pictures is not None and out is None:
        raise typer.BadParameter("--pictures draws a figure: give its folder with --out")
    if out is not None:
        check_figures()
    return None if pictures is None else open_images(pictures)


def _named_test() -> Callable[[str], bool]:
    from excite.models.architectures import embedded_labels
    from excite.tags.visual_words import is_named, known_words

    words = known_words(embedded_labels("everyday"))
    return lambda tag: is_named(tag, words)


def _dictionary(judged: Dictionary, counted: Statistics) -> dict[str, Any]:
    """The share of the corpus that the dictionary covers."""
    listed = sum(judged.counts)
    return {
        "tags": len(judged),
        "covers": listed / counted.listed if counted.listed else None,
        "never_listed": sum(count == 0 for count in judged.counts),
    }


def _visual(judged: Dictionary, is_named: Callable[[str], bool], learnt: dict[str, bool] | None) -> dict[str, Any]:
    from excite.tags.visual_words import learnt_share, visual_share

    named = {"named": visual_share(judged, is_named)}
    return named if learnt is None else {**named, "learnt": learnt_share(judged, learnt)}


def _top(top: Dictionary, counted: Statistics, is_named: Callable[[str], bool]) -> list[dict[str, Any]]:
    return [
        {"rank": rank, "tag": tag, "count": count, "a_picture": count / counted.pictures, "named": is_named(tag)}
        for rank, (tag, count) in enumerate(zip(top.tags, top.counts, strict=True), 1)
    ]


def _draw_stats(
    counted: Statistics, thresholds: list[int], is_named: Callable[[str], bool], out: Path
) -> tuple[list[Path], dict[str, int]]:
    """Draw the curve and the cloud; the files, and the numbers of drawn and omitted tags."""
    from excite.tags.figures import cloud_figure, cloud_of, frequency_figure
    from excite.tags.statistics import zipf_slope

    curve = frequency_figure(counted.counts, thresholds, zipf_slope(counted.counts), out / "frequency.png")
    cloud = cloud_of(counted.most_frequent(FOR_CLOUD))
    left_out = {"not_in_font": len(cloud.not_in_font), "too_long": len(cloud.too_long)}
    drawn = cloud_figure(cloud, out / "cloud.png", is_named)
    return [curve, drawn], {"tags": len(cloud.words), **left_out}


def _examples(rows: Corpus, images: ImageSource, path: Path) -> list[str]:
    """Draw some images with their tags; returns the reasons why others cannot be read."""
    from excite.io.files import save_png
    from excite.tags.contact_sheet import contact_sheet, read_images, sample_rows

    tagged, failures = read_images(sample_rows(rows, SPARE * EXAMPLES_SHOWN), images, EXAMPLES_SHOWN)
    title = f"{rows.path.name}: {len(tagged)} of {rows.rows:,} images with their first five tags"
    save_png(contact_sheet(tagged, title), path)
    return failures


def _print_stats(answer: dict[str, Any], corpus: Path) -> None:

    for line in _lines(answer):
        say(line)
    say()
    print_columns(
        [
            {
                "listed at least": f"{one['at_least']:,}",
                "tags": f"{one['tags']:,}",
                "of all listed": percent(one["covers"]),
            }
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
    from excite.tags.visual_words import shown

    return {
        "rank": str(one["rank"]),
        "tag": shown(one["tag"]),
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
    """A share in percent.

    Example:
        >>> percent(0.1234), percent(None)
        ('12.3 %', '-')
    """
    return "-" if share is None else f"{100 * share:.1f} %"

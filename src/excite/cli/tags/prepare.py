"""``excite tags clean``, ``captions`` and ``shards``: commands that write a corpus."""

from __future__ import annotations

import re
import resource
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from excite.cli.console import complain, note, progress, say, say_json
from excite.cli.options import Address, Columns, CorpusArgument, Engine, Workers, columns_of, executor_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from excite.tags.images.shard_writer import Shard


CLEAN_EXAMPLES = """\b
Examples:
  excite tags clean raw.parquet --out kept.parquet                     as in the paper's appendix
  excite tags clean raw.csv --out kept.parquet --columns image=url,tags=keywords,user=owner --min-count 50
  excite tags clean raw.parquet --out kept.parquet --choices           and what other thresholds would cost
  excite tags stats kept.parquet                                       what is in it
  excite train tags kept.parquet --pictures photos --out classifier    learn it
"""


def clean_command(
    corpus: Annotated[
        Path, typer.Argument(metavar="CORPUS", help="Parquet (a file or a folder of parts), CSV, TSV or JSON Lines.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The Parquet file for what is kept; others lie beside it.")],
    min_count: Annotated[int, typer.Option(min=1, help="A tag seen at least so often is in the dictionary.")] = 1000,
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
    workers: Workers = None,
    engine: Engine = "local",
    address: Address = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Keep the images of a tag corpus that are worth learning from, and take its dictionary.

    Dropped are images with fewer than five tags, those whose tags stand in alphabetical order, and those whose first
    five tags share more than three with an earlier image of the same user. Every dropped image is listed with its
    reason. A stopped run is resumed.
    """
    from excite.tags.cleaning.rules import Rules
    from excite.tags.cleaning.run import CleaningRun
    from excite.tags.dictionary import TagNormaliser

    started = time.monotonic()
    cleaning = CleaningRun(
        source=corpus,
        out=out,
        rules=Rules(min_count, top, min_tags, not keep_alphabetical, not keep_similar, first, overlap, against),
        normaliser=TagNormaliser(plurals=plurals),
        columns=columns_of(columns, users_needed=not keep_similar),
        workers=executor_of(workers, engine, address),
        progress=progress,
        variants=choices,
    )
    report = cleaning.clean()
    report["seconds"] = round(time.monotonic() - started, 1)
    report["peak_mb"] = _peak(workers or 1)
    report["files"] = [str(out), *(str(out.with_suffix(end)) for end in (".tags.csv", ".dropped.parquet"))]
    say_json(report) if as_json else _print_clean(report)
    if not report["tags"]:
        note(f"no tag is listed {min_count} times: give a lower --min-count")


def _peak(workers: int) -> int:
    """An upper bound of the memory used, in megabytes: the peaks of this process and all its workers."""
    own, largest = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return (own + workers * largest) // 1024


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
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Convert captions to tags: the words of an image's captions, those in most of them first."""
    from excite.tags.formats.captions import captions_to_corpus, read_stop_words
    from excite.vocabulary.word_lists import STOP_WORDS

    words = STOP_WORDS if stop_words is None else read_stop_words(stop_words)
    answer = captions_to_corpus(captions, out, plurals=plurals, stop_words=words)
    answer["file"] = str(out)
    say_json(answer) if as_json else _print_captions(answer)


def _print_captions(answer: dict[str, Any]) -> None:
    say(
        f"{answer['pictures']} images with {answer['captions']} captions: {answer['words']} tags, "
        f"{answer['distinct']} different ones"
    )
    if answer["skipped"]:
        reasons = ", ".join(f"{count} {reason}" for reason, count in answer["skipped"].items())
        say(f"skipped: {reasons}")
    say(f"written: {answer['file']}")


SHARDS_EXAMPLES = """\b
Examples:
  excite tags shards kept.parquet --pictures photos --out shards              200 MB each
  excite tags shards kept.parquet --pictures photos --out shards --rows 10000
  excite tags shards kept.parquet --pictures . --urls --out shards            fetch images named by web addresses
"""

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
SIZE_TEXT = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", re.IGNORECASE)


def shards_command(
    corpus: CorpusArgument,
    pictures: Annotated[str, typer.Option(metavar="ROOT", help="Where its images lie: a folder, or other shards.")],
    out: Annotated[Path, typer.Option(help="The folder for the shards; a run that was stopped goes on there.")],
    size: Annotated[
        str | None, typer.Option(metavar="BYTES", help="A shard of this size is full, as 200MB or 1GB.")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, metavar="N", help="Images per shard, instead of a size.")] = None,
    urls: Annotated[
        bool,
        typer.Option("--urls", help="Fetch images that are named by web addresses: only for a corpus you trust."),
    ] = False,
    columns: Columns = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write the images of a corpus, with their tags, as tar files in the WebDataset layout.

    Images are copied as they are, in the order of the corpus. Those that cannot be read are left out and counted.
    """
    from excite.tags.corpus import Corpus
    from excite.tags.images import open_images
    from excite.tags.images.shard_writer import SIZE, ShardWriter

    if size is not None and rows is not None:
        raise typer.BadParameter("--rows already limits a shard: leave --size out")
    room = None if rows is not None else SIZE if size is None else _bytes(size)
    writer = ShardWriter(
        Corpus(corpus, columns_of(columns, users_needed=False)),
        open_images(pictures, urls=urls),
        out,
        room,
        rows,
        progress,
    )
    answer = _answer(writer.write(), out)
    say_json(answer) if as_json else _print_shards(answer, out)
    for failure in writer.failures:
        complain(failure)
    if answer["bad"]:
        complain(f"{answer['bad']} of {answer['read']} images were left out, as above")


def _bytes(text: str) -> int:
    """Parse a size in bytes.

    Example:
        >>> _bytes("200MB"), _bytes("1.5 gb")
        (200000000, 1500000000)
    """
    if (meant := SIZE_TEXT.fullmatch(text.strip())) is None or float(meant[1]) == 0:
        raise typer.BadParameter(f"--size {text!r} is no size: write it as 200MB or 1GB")
    return int(float(meant[1]) * UNITS[meant[2].upper()])


def _answer(shards: Iterable[Shard], out: Path) -> dict[str, Any]:
    shards = list(shards)
    return {
        "read": sum(shard.end - shard.first for shard in shards),
        "written": sum(shard.pictures for shard in shards),
        "bad": sum(shard.bad for shard in shards),
        "repeated": sum(shard.repeated for shard in shards),
        "bytes": sum(shard.bytes for shard in shards),
        "files": [str(out / shard.file) for shard in shards if shard.pictures],
    }


def _print_shards(answer: dict[str, Any], out: Path) -> None:
    repeated = f", {answer['repeated']} named before" if answer["repeated"] else ""
    say(
        f"{answer['written']} of {answer['read']} images in {len(answer['files'])} shards "
        f"({answer['bytes'] / 1e6:.1f} MB); {answer['bad']} could not be read{repeated}"
    )
    say(f"next: excite train tags CORPUS --pictures {shlex.quote(str(out))}", dim=True)

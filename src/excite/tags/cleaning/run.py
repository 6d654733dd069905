"""From a raw corpus to one worth learning from: the paper's appendix at its size, streamed, on one machine or many.

Each row is read twice: once to see what the rules need to know (`Looking`, resumed where it was stopped), once to write
what is kept (`Parting`). In between, images of the same user are compared (`Comparing`). Texts never pile up in
memory: an image takes some 60 bytes there, a different tag some 150.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import DataError, ExciteError
from excite.io.files import save_json, save_text
from excite.io.locks import Lock
from excite.jobs import Executor, Job, JsonLinesStore
from excite.jobs.loop import no_progress, run
from excite.tags.cleaning.steps import CODES, KEPT, Gathered, Pile, Shelf, Steps, dropped_schema, kept_schema
from excite.tags.cleaning.survey import RULES, Rules, Survey
from excite.tags.corpus import ColumnNames, RowGroups
from excite.tags.dictionary import Dictionary, Normalising, dictionary_beside
from excite.tags.formats.parquet import open_any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from excite.jobs import Entry, Runner
    from excite.jobs.loop import Progress
    from excite.tags.cleaning.duplicates import Alike
    from excite.tags.corpus import Corpus


# What the thresholds of a cleaning cost: what would be kept if one of them were another.

LEAST_TAGS = (1, 3, 5, 8, 10, 15)
OVERLAPS = (2, 3, 4)
LEAST_COUNTS = (10, 30, 100, 300, 1000, 3000, 10_000)


@dataclass(frozen=True)
class Choice:
    """Other rules, and what is different about them."""

    name: str
    rules: Rules


def choices_of(rules: Rules) -> list[Choice]:
    """The rules with one threshold after the other changed; the first are the rules as they are.

    Example:
        >>> from excite.tags.cleaning.survey import Rules
        >>> [choice.name for choice in choices_of(Rules())][:3]
        ['as asked', 'at least 1 tags', 'at least 3 tags']
    """
    choices = [Choice("as asked", rules)]
    choices += [Choice(f"at least {least} tags", replace(rules, least_tags=least)) for least in LEAST_TAGS]
    said = "alphabetical lists kept" if rules.alphabetical else "alphabetical lists dropped"
    choices.append(Choice(said, replace(rules, alphabetical=not rules.alphabetical)))
    if rules.similar:
        choices.append(Choice("similar ones kept", replace(rules, similar=False)))
        shared = [overlap for overlap in OVERLAPS if overlap < rules.first]
        choices += [Choice(f"more than {overlap} shared", replace(rules, overlap=overlap)) for overlap in shared]
        other = "kept" if rules.against == "seen" else "seen"
        choices.append(Choice(f"compared with {other} ones", replace(rules, against=other)))
    return [choices[0], *(choice for choice in choices[1:] if choice.rules != rules)]


def dictionaries(counts: NDArray[np.int64], least_count: int) -> list[dict[str, Any]]:
    """How many tags would be in a dictionary, and which share of all listed tags, for several least counts.

    Example:
        >>> import numpy as np
        >>> dictionaries(np.array([5000, 20, 1]), 1000)[-3]
        {'least_count': 1000, 'tags': 1, 'share_of_listed': 0.9958}
    """
    listed = max(int(counts.sum()), 1)
    rows = []
    for least in sorted({*LEAST_COUNTS, least_count}):
        inside = counts[counts >= max(least, 1)]
        rows.append(
            {"least_count": least, "tags": len(inside), "share_of_listed": round(int(inside.sum()) / listed, 4)}
        )
    return rows


def markdown(report: dict[str, Any]) -> str:
    """Both tables as a page to read.

    Example:
        >>> row = {"choice": "as asked", "kept": 6, "few_tags": 1, "alphabetical": 2, "similar": 1}
        >>> size = {"least_count": 1000, "tags": 1, "share_of_listed": 0.5}
        >>> print(markdown({"read": 10, "pictures": [row], "dictionary": [size]}))  # doctest: +ELLIPSIS
        # What the thresholds cost...
    """
    lines = [f"# What the thresholds cost\n\nOf {report['read']:,} images are kept, if one rule is changed:\n"]
    lines += ["| rule | kept | share | too few tags | alphabetical | similar |", "|---|---:|---:|---:|---:|---:|"]
    for row in report["pictures"]:
        numbers = " | ".join(f"{row[rule]:,}" for rule in ("few_tags", "alphabetical", "similar"))
        lines.append(f"| {row['choice']} | {row['kept']:,} | {row['kept'] / report['read']:.1%} | {numbers} |")
    lines += ["\nThe dictionary, by how often a tag must be seen:\n", "| at least | tags | of all listed tags |"]
    lines.append("|---:|---:|---:|")
    lines += [
        f"| {row['least_count']:,} | {row['tags']:,} | {row['share_of_listed']:.1%} |" for row in report["dictionary"]
    ]
    return "\n".join(lines) + "\n"


# Where surveys are kept while a corpus is cleaned.


class Surveys(JsonLinesStore):
    """Where surveys are kept: each in a file of its own, and a ledger that says which."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "index.jsonl", required=("files",))
        self.folder = folder

    def read(self) -> dict[str, Entry]:
        """The pieces that were looked at, by key."""
        entries = super().read().items()
        return {key: one for key, one in entries if all((self.folder / name).is_file() for name in one["files"])}

    def add(self, entry: Entry) -> None:
        """Keep the surveys of one more piece; first the files, so that every line is true."""
        names = [f"{entry['key']}-{place}.npz" for place in range(len(entry["surveys"]))]
        for name, seen in zip(names, entry["surveys"], strict=True):
            seen.save(self.folder / name)
        super().add({"key": entry["key"], "files": names})


# From a raw corpus to one worth learning from: the paper's appendix at its size, streamed, on one machine or many.
#
# Each row is read twice: once to see what the rules need to know (`Looking`, resumed where it was stopped), once to
# write what is kept (`Parting`). In between, images of the same user are compared (`Comparing`). Texts never pile
# up in memory: an image takes some 60 bytes there, a different tag some 150.


@dataclass(eq=False)
class Cleaning:
    """The cleaning of a corpus.

    Args:
        source: the corpus: Parquet, CSV or JSON Lines.
        out: a Parquet file for the images that are kept; beside it the dictionary (``.tags.csv``), what was dropped
            and why (``.dropped.parquet``), and a report (``.report.json``).
        rules: which images are dropped.
        normalising: how tags are written.
        columns: what the columns of the corpus are called.
        workers: who does the work.
        progress: shows how far it is.
        alike: drops images that cannot be read or look like an earlier one, whoever showed it; None for no such rule.
        choices: also tell what other thresholds would cost (``.choices.json`` and ``.choices.md``).

    Example:
        >>> Cleaning(Path("raw.parquet"), Path("kept.parquet")).clean()["kept"]  # doctest: +SKIP
        6012345
    """

    source: Path
    out: Path
    rules: Rules = field(default_factory=Rules)
    normalising: Normalising = field(default_factory=Normalising)
    columns: ColumnNames = field(default_factory=ColumnNames)
    workers: int | Executor = 1
    progress: Progress = no_progress
    alike: Alike | None = None
    choices: bool = False

    def __post_init__(self) -> None:
        if self.out.suffix != ".parquet":
            raise DataError(f"{self.out} would be Parquet: let its name end in .parquet")
        if self.out.resolve() == self.source.resolve():
            raise DataError(f"{self.out} is the corpus itself: give another --out")
        if self.rules.similar and (self.columns.user is None or not self.columns.users_needed):
            raise DataError("pictures of the same user cannot be compared without a user column: keep similar ones")

    @property
    def work(self) -> Path:
        """The folder for all that a cleaning needs to go on where it was stopped."""
        return self.out.with_name(f".{self.out.stem}.work")

    @cached_property
    def _opened(self) -> tuple[Corpus, dict[str, int]]:
        corpus, faults = open_any(self.source, self.columns, self.work)
        if not corpus.rows:
            raise DataError(f"{self.source} has no rows: there is nothing to clean")
        return corpus, dict(faults)

    def clean(self) -> dict[str, Any]:
        """Write the cleaned corpus and what belongs to it; the report."""
        lock = Lock(self.work)
        lock.take()
        try:
            report = self._clean()
            shutil.rmtree(self.work, ignore_errors=True)  # the next run into this folder may already be at it
        except OSError as error:
            raise ExciteError(
                f"cannot write {str(self.out)!r}: {error.strerror or error}; has the disk room?"
            ) from None
        finally:
            lock.release()
            if self.work.is_dir() and len(list(self.work.iterdir())) <= 1:  # there is no more than the lock in it
                shutil.rmtree(self.work, ignore_errors=True)
        return report

    def _clean(self) -> dict[str, Any]:
        corpus, faults = self._opened
        steps = Steps(corpus.columns, self.normalising, self.rules.first)
        with Executor.of(self.workers).start(steps) as runner:
            hands = _Hands(steps, runner, self.progress)
            gathered = self._gathered(self._surveys(hands))
            like = np.full(corpus.rows, -1, np.int64)
            if self.rules.similar:
                for rows, others in hands.similar(gathered, self.rules):
                    gathered.verdicts[rows], like[rows] = CODES["similar"], others
            if self.alike is not None:
                self._drop_alike(self.alike, gathered.verdicts, like)
            report = self._report(gathered, faults)
            self._part(gathered.verdicts, like, hands)
            self._dictionary(gathered).save(dictionary_beside(self.out))
            if self.choices:
                self._tell_choices(gathered, hands)
        save_json(report, self.out.with_suffix(".report.json"))
        return report

    def _surveys(self, hands: _Hands) -> list[list[Path]]:
        """Look at all pieces; for each the files of its surveys."""
        corpus, _ = self._opened
        book = Surveys(self.work / "surveys")
        entries = run(hands.steps, corpus.pieces, book, workers=hands.runner)
        keys = [entry["key"] for entry in self.progress(entries, len(corpus.pieces), "pieces looked at")]
        files = book.read()
        return [[book.folder / name for name in files[key]["files"]] for key in keys]

    def _gathered(self, surveys: list[list[Path]]) -> Gathered:
        corpus, _ = self._opened
        shelves = self.work / "shelves"
        shutil.rmtree(shelves, ignore_errors=True)  # of a run that was stopped
        shelves.mkdir()
        gathered = Gathered(shelves, self.rules, corpus.rows)
        files = [file for piece in surveys for file in piece]
        gathered.name(np.concatenate([Survey.read_images(file) for file in files]))
        row = 0
        for file in self.progress(files, len(files), "batches gathered"):
            seen = Survey.read(file)
            gathered.add(row, seen)
            row += len(seen.user)
        gathered.judge()
        return gathered

    def _drop_alike(self, alike: Alike, verdicts: NDArray[np.uint8], like: NDArray[np.int64]) -> None:
        """Drop images that cannot be read, and those that look like an earlier one."""
        corpus, _ = self._opened
        rows = np.flatnonzero(verdicts == KEPT)
        names = (name for batch in corpus.batches() for name in batch.column("image").to_pylist())
        kept = (name for name, verdict in zip(names, verdicts.copy(), strict=True) if verdict == KEPT)
        found, read = alike(kept, len(rows), self.work / "likeness.jsonl", self.workers, self.progress)
        dropped = found >= 0
        verdicts[rows[~read]] = CODES["unreadable"]
        verdicts[rows[dropped]], like[rows[dropped]] = CODES["near_duplicate"], rows[found[dropped]]

    def _tell_choices(self, gathered: Gathered, hands: _Hands) -> None:
        """What other rules would keep; near duplicates are left out of it."""
        table = []
        for choice in choices_of(self.rules):
            few, ordered = gathered.verdicts_of(choice.rules)
            found = hands.similar(gathered, choice.rules) if choice.rules.similar else ()
            counted = {
                "few_tags": int(few.sum()),
                "alphabetical": int(ordered.sum()),
                "similar": sum(len(rows) for rows, _ in found),
            }
            named = int(np.isin(gathered.verdicts, [CODES["no_image"], CODES["repeated_image"]], invert=True).sum())
            table.append({"choice": choice.name, "kept": named - sum(counted.values()), **counted})
        sizes = dictionaries(gathered.counts, self.rules.least_count)
        report = {"read": gathered.rows, "pictures": table, "dictionary": sizes}
        save_json(report, self.out.with_suffix(".choices.json"))
        save_text(markdown(report), self.out.with_suffix(".choices.md"))

    def _part(self, verdicts: NDArray[np.uint8], like: NDArray[np.int64], hands: _Hands) -> None:
        """Write what is kept and what is dropped."""
        corpus, _ = self._opened
        piles = (
            Pile(piece, verdicts[piece.first : piece.first + piece.rows], like[piece.first : piece.first + piece.rows])
            for piece in corpus.pieces
        )
        dropped_file = self.out.with_suffix(".dropped.parquet")
        with RowGroups(self.out, kept_schema()) as kept, RowGroups(dropped_file, dropped_schema()) as dropped:
            for answer in hands.answers(piles, len(corpus.pieces), "pieces written"):
                for batch in answer["kept"]:
                    kept.add(batch)
                for batch in answer["dropped"]:
                    dropped.add(batch)

    def _dictionary(self, gathered: Gathered) -> Dictionary:
        often = np.flatnonzero(gathered.counts >= max(self.rules.least_count, 1))
        words = list(gathered.words.numbers)
        return Dictionary.ranked(
            [(words[number], int(gathered.counts[number])) for number in often.tolist()], self.rules.most_tags
        )

    def _report(self, gathered: Gathered, faults: dict[str, int]) -> dict[str, Any]:
        verdicts = np.bincount(gathered.verdicts, minlength=len(RULES) + 1)
        asked = {
            "alphabetical": self.rules.alphabetical,
            "similar": self.rules.similar,
            "unreadable": self.alike is not None,
            "near_duplicate": self.alike is not None,
        }
        dropped = {rule: int(verdicts[code]) for rule, code in CODES.items() if asked.get(rule, True)}
        return {
            "read": gathered.rows + sum(faults.values()),
            "kept": int(verdicts[0]),
            "dropped": {**faults, **dropped},
            "tags": len(self._dictionary(gathered)),
            "different_tags": len(gathered.words.numbers),
            "listed_tags": int(gathered.counts.sum()),
            "users": len(gathered.users.numbers),
            "without_user": gathered.nobodys,
            "changed": dict(sorted(gathered.changes.items())),
            "rules": asdict(self.rules),
            "normalising": asdict(self.normalising),
        }


@dataclass(frozen=True)
class _Hands:
    """Those who do the steps of a cleaning, hired once for all of them."""

    steps: Steps
    runner: Runner
    progress: Progress

    def answers(self, tasks: Iterable[Any], total: int, what: str) -> Iterator[dict[str, Any]]:
        """The answers, in the order of the tasks; none of them is written down."""
        jobs = (Job(task, self.steps.key(task)) for task in tasks)
        for _, outcome in self.progress(self.runner(jobs), total, what):
            if isinstance(outcome, ExciteError):
                raise outcome
            yield outcome

    def similar(self, gathered: Gathered, rules: Rules) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Rows of images that are similar to an earlier one, and the rows of those."""
        shelves = (Shelf(rules, pictures) for pictures in gathered.candidates(rules))
        for answer in self.answers(shelves, gathered.number_of_shelves, "shelves compared"):
            yield answer["rows"], answer["like"]

"""From a raw corpus to one worth learning from: the paper's appendix at its size, streamed, on one machine or many.

Each row is read twice: once to see what the rules need to know (`Looking`, resumed where it was stopped), once to write
what is kept (`Parting`). In between, pictures of the same user are compared (`Comparing`). Texts never pile up in
memory: a picture takes some 60 bytes there, a different tag some 150.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import DataError, ExciteError
from excite.io.files import save_json, save_text
from excite.io.locking import Lock
from excite.jobs import Crew, Job
from excite.jobs.loop import run, unwatched
from excite.tags.cleaning.choices import choices_of, dictionaries, markdown
from excite.tags.cleaning.gathering import CODES, KEPT, Gathered
from excite.tags.cleaning.rules import RULES, Rules
from excite.tags.cleaning.steps import Pile, Shelf, Steps, dropped_schema, kept_schema
from excite.tags.cleaning.survey import Survey
from excite.tags.cleaning.surveys import Surveys
from excite.tags.corpus import ColumnNames
from excite.tags.dictionary import Dictionary, dictionary_beside
from excite.tags.formats.parquet import open_any
from excite.tags.normalising import Normalising
from excite.tags.row_groups import RowGroups

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from excite.jobs import Team
    from excite.jobs.loop import Watch
    from excite.tags.cleaning.duplicates import Alike
    from excite.tags.corpus import Corpus

__all__ = ["Cleaning"]


@dataclass(eq=False)
class Cleaning:
    """The cleaning of a corpus.

    Args:
        source: the corpus: Parquet, CSV or JSON Lines.
        out: a Parquet file for the pictures that are kept; beside it the dictionary (``.tags.csv``), what was dropped
            and why (``.dropped.parquet``), and a report (``.report.json``).
        rules: which pictures are dropped.
        normalising: how tags are written.
        columns: what the columns of the corpus are called.
        workers: who does the work.
        watch: shows how far it is.
        alike: drops pictures that cannot be read or look like an earlier one, whoever showed it; None for no such rule.
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
    workers: int | Crew = 1
    watch: Watch = unwatched
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
        with Crew.of(self.workers).hired(steps) as team:
            hands = _Hands(steps, team, self.watch)
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
        entries = run(hands.steps, corpus.pieces, book, workers=hands.team)
        keys = [entry["key"] for entry in self.watch(entries, len(corpus.pieces), "pieces looked at")]
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
        for file in self.watch(files, len(files), "batches gathered"):
            seen = Survey.read(file)
            gathered.add(row, seen)
            row += len(seen.user)
        gathered.judge()
        return gathered

    def _drop_alike(self, alike: Alike, verdicts: NDArray[np.uint8], like: NDArray[np.int64]) -> None:
        """Drop pictures that cannot be read, and those that look like an earlier one."""
        corpus, _ = self._opened
        rows = np.flatnonzero(verdicts == KEPT)
        names = (name for batch in corpus.batches() for name in batch.column("image").to_pylist())
        kept = (name for name, verdict in zip(names, verdicts.copy(), strict=True) if verdict == KEPT)
        found, read = alike(kept, len(rows), self.work / "likeness.jsonl", self.workers, self.watch)
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
    team: Team
    watch: Watch

    def answers(self, tasks: Iterable[Any], total: int, what: str) -> Iterator[dict[str, Any]]:
        """The answers, in the order of the tasks; none of them is written down."""
        jobs = (Job(task, self.steps.key(task)) for task in tasks)
        for _, outcome in self.watch(self.team(jobs), total, what):
            if isinstance(outcome, ExciteError):
                raise outcome
            yield outcome

    def similar(self, gathered: Gathered, rules: Rules) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Rows of pictures that are similar to an earlier one, and the rows of those."""
        shelves = (Shelf(rules, pictures) for pictures in gathered.candidates(rules))
        for answer in self.answers(shelves, gathered.number_of_shelves, "shelves compared"):
            yield answer["rows"], answer["like"]

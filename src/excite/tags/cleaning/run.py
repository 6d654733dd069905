"""The cleaning of a corpus by the rules of the paper's appendix, streamed, on one machine or many.

Each row is read twice: once for what the rules need (`survey`; resumable), once to write the kept rows. In between,
images of the same user are compared. Texts never accumulate in memory: an image takes some 60 bytes, a distinct tag
some 150.
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
from excite.tags.cleaning.steps import (
    CODES,
    KEPT,
    CleaningSteps,
    CorpusSurvey,
    RowGroupVerdicts,
    dropped_schema,
    kept_schema,
)
from excite.tags.cleaning.survey import RULES, Rules, Survey
from excite.tags.corpus import ColumnNames, RowGroupWriter
from excite.tags.dictionary import Dictionary, TagNormaliser, dictionary_beside
from excite.tags.formats.parquet import open_corpus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from excite.jobs import Entry, Runner
    from excite.jobs.loop import Progress
    from excite.tags.cleaning.duplicates import DuplicateFilter
    from excite.tags.corpus import Corpus

LEAST_TAGS = (1, 3, 5, 8, 10, 15)
OVERLAPS = (2, 3, 4)
LEAST_COUNTS = (10, 30, 100, 300, 1000, 3000, 10_000)


@dataclass(eq=False)
class CleaningRun:
    """The cleaning of a corpus.

    Args:
        source: the corpus: Parquet, CSV or JSON Lines.
        out: a Parquet file for the kept images; beside it the dictionary (``.tags.csv``), the dropped images with the
            reason (``.dropped.parquet``), and a report (``.report.json``).
        rules: the thresholds.
        normaliser: of the tags.
        columns: the column names of the corpus.
        workers: the number of processes, or an executor.
        progress: reports the progress.
        duplicates: drops unreadable images and near duplicates; None for no such rule.
        variants: also report the effect of other thresholds (``.choices.json`` and ``.choices.md``).

    Example:
        >>> CleaningRun(Path("raw.parquet"), Path("kept.parquet")).clean()["kept"]  # doctest: +SKIP
        6012345
    """

    source: Path
    out: Path
    rules: Rules = field(default_factory=Rules)
    normaliser: TagNormaliser = field(default_factory=TagNormaliser)
    columns: ColumnNames = field(default_factory=ColumnNames)
    workers: int | Executor = 1
    progress: Progress = no_progress
    duplicates: DuplicateFilter | None = None
    variants: bool = False

    def __post_init__(self) -> None:
        if self.out.suffix != ".parquet":
            raise DataError(f"{self.out} would be Parquet: let its name end in .parquet")
        if self.out.resolve() == self.source.resolve():
            raise DataError(f"{self.out} is the corpus itself: give another --out")
        if self.rules.similar and (self.columns.user is None or not self.columns.users_needed):
            raise DataError("images of the same user cannot be compared without a user column: keep similar ones")

    @property
    def work(self) -> Path:
        """The folder for intermediate results, from which a stopped run is resumed."""
        return self.out.with_name(f".{self.out.stem}.work")

    @cached_property
    def _opened(self) -> tuple[Corpus, dict[str, int]]:
        corpus, skipped = open_corpus(self.source, self.columns, self.work)
        if not corpus.rows:
            raise DataError(f"{self.source} has no rows: there is nothing to clean")
        return corpus, dict(skipped)

    def clean(self) -> dict[str, Any]:
        """Write the cleaned corpus and the files beside it; returns the report."""
        lock = Lock(self.work)
        lock.take()
        try:
            report = self._clean()
            shutil.rmtree(self.work, ignore_errors=True)  # the next run into this folder may have begun
        except OSError as error:
            raise ExciteError(
                f"cannot write {str(self.out)!r}: {error.strerror or error}; has the disk room?"
            ) from None
        finally:
            lock.release()
            if self.work.is_dir() and len(list(self.work.iterdir())) <= 1:  # nothing but the lock
                shutil.rmtree(self.work, ignore_errors=True)
        return report

    def _clean(self) -> dict[str, Any]:
        corpus, skipped = self._opened
        steps = CleaningSteps(corpus.columns, self.normaliser, self.rules.first)
        with Executor.of(self.workers).start(steps) as started:
            runner = _StepRunner(steps, started, self.progress)
            merged = self._merged(self._surveys(runner))
            like = np.full(corpus.rows, -1, np.int64)
            if self.rules.similar:
                for rows, others in runner.similar(merged, self.rules):
                    merged.verdicts[rows], like[rows] = CODES["similar"], others
            if self.duplicates is not None:
                self._drop_duplicates(self.duplicates, merged.verdicts, like)
            report = self._report(merged, skipped)
            self._write(merged.verdicts, like, runner)
            self._dictionary(merged).save(dictionary_beside(self.out))
            if self.variants:
                self._report_variants(merged, runner)
        save_json(report, self.out.with_suffix(".report.json"))
        return report

    def _surveys(self, runner: _StepRunner) -> list[Path]:
        """Survey all row groups; the files of the surveys."""
        corpus, _ = self._opened
        store = SurveyStore(self.work / "surveys")
        entries = run(runner.steps, corpus.row_groups, store, workers=runner.run)
        keys = [entry["key"] for entry in self.progress(entries, len(corpus.row_groups), "row groups surveyed")]
        files = store.read()
        return [store.folder / name for key in keys for name in files[key]["files"]]

    def _merged(self, surveys: list[Path]) -> CorpusSurvey:
        corpus, _ = self._opened
        buckets = self.work / "buckets"
        shutil.rmtree(buckets, ignore_errors=True)  # of a run that was stopped
        buckets.mkdir()
        merged = CorpusSurvey(buckets, self.rules, corpus.rows)
        merged.drop_unnamed(np.concatenate([Survey.read_images(file) for file in surveys]))
        row = 0
        for file in self.progress(surveys, len(surveys), "batches merged"):
            seen = Survey.read(file)
            merged.add(row, seen)
            row += len(seen.user)
        merged.drop_by_tags()
        return merged

    def _drop_duplicates(
        self, duplicates: DuplicateFilter, verdicts: NDArray[np.uint8], like: NDArray[np.int64]
    ) -> None:
        corpus, _ = self._opened
        rows = np.flatnonzero(verdicts == KEPT)
        names = (name for batch in corpus.batches() for name in batch.column("image").to_pylist())
        kept = (name for name, verdict in zip(names, verdicts.copy(), strict=True) if verdict == KEPT)
        found, read = duplicates(kept, len(rows), self.work / "likeness.jsonl", self.workers, self.progress)
        dropped = found >= 0
        verdicts[rows[~read]] = CODES["unreadable"]
        verdicts[rows[dropped]], like[rows[dropped]] = CODES["near_duplicate"], rows[found[dropped]]

    def _report_variants(self, merged: CorpusSurvey, runner: _StepRunner) -> None:
        """The number of images that other rules would keep; near duplicates are not counted."""
        table = []
        for name, rules in variants_of(self.rules):
            few, ordered = merged.failing(rules)
            found = runner.similar(merged, rules) if rules.similar else ()
            counted = {
                "few_tags": int(few.sum()),
                "alphabetical": int(ordered.sum()),
                "similar": sum(len(rows) for rows, _ in found),
            }
            named = int(np.isin(merged.verdicts, [CODES["no_image"], CODES["repeated_image"]], invert=True).sum())
            table.append({"choice": name, "kept": named - sum(counted.values()), **counted})
        sizes = dictionary_sizes(merged.counts, self.rules.least_count)
        report = {"read": merged.rows, "pictures": table, "dictionary": sizes}
        save_json(report, self.out.with_suffix(".choices.json"))
        save_text(markdown(report), self.out.with_suffix(".choices.md"))

    def _write(self, verdicts: NDArray[np.uint8], like: NDArray[np.int64], runner: _StepRunner) -> None:
        """Write the kept and the dropped images."""
        corpus, _ = self._opened
        tasks = (
            RowGroupVerdicts(group, verdicts[rows], like[rows])
            for group in corpus.row_groups
            for rows in [slice(group.first, group.first + group.rows)]
        )
        dropped_file = self.out.with_suffix(".dropped.parquet")
        with RowGroupWriter(self.out, kept_schema()) as kept, RowGroupWriter(dropped_file, dropped_schema()) as dropped:
            for answer in runner.results(tasks, len(corpus.row_groups), "row groups written"):
                for batch in answer["kept"]:
                    kept.add(batch)
                for batch in answer["dropped"]:
                    dropped.add(batch)

    def _dictionary(self, merged: CorpusSurvey) -> Dictionary:
        often = np.flatnonzero(merged.counts >= max(self.rules.least_count, 1))
        words = list(merged.words.numbers)
        return Dictionary.ranked(
            [(words[number], int(merged.counts[number])) for number in often.tolist()], self.rules.most_tags
        )

    def _report(self, merged: CorpusSurvey, skipped: dict[str, int]) -> dict[str, Any]:
        verdicts = np.bincount(merged.verdicts, minlength=len(RULES) + 1)
        applied = {
            "alphabetical": self.rules.alphabetical,
            "similar": self.rules.similar,
            "unreadable": self.duplicates is not None,
            "near_duplicate": self.duplicates is not None,
        }
        dropped = {rule: int(verdicts[code]) for rule, code in CODES.items() if applied.get(rule, True)}
        return {
            "read": merged.rows + sum(skipped.values()),
            "kept": int(verdicts[KEPT]),
            "dropped": {**skipped, **dropped},
            "tags": len(self._dictionary(merged)),
            "different_tags": len(merged.words.numbers),
            "listed_tags": int(merged.counts.sum()),
            "users": len(merged.users.numbers),
            "without_user": merged.without_user,
            "changed": dict(sorted(merged.changes.items())),
            "rules": asdict(self.rules),
            "normalising": asdict(self.normaliser),
        }


@dataclass(frozen=True)
class _StepRunner:
    """Runs the steps of a cleaning on workers that are started once for all of them."""

    steps: CleaningSteps
    run: Runner
    progress: Progress

    def results(self, tasks: Iterable[Any], total: int, what: str) -> Iterator[dict[str, Any]]:
        """The results in the order of the tasks; they are not stored."""
        jobs = (Job(task, self.steps.key(task)) for task in tasks)
        for _, outcome in self.progress(self.run(jobs), total, what):
            if isinstance(outcome, ExciteError):
                raise outcome
            yield outcome

    def similar(self, merged: CorpusSurvey, rules: Rules) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """The rows of images that are similar to an earlier one, and the rows of those."""
        for answer in self.results(merged.candidates(rules), merged.buckets, "groups of users compared"):
            yield answer["rows"], answer["like"]


class SurveyStore(JsonLinesStore):
    """Stores the surveys of row groups: each in a file of its own, with an index."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "index.jsonl", required=("files",))
        self.folder = folder

    def read(self) -> dict[str, Entry]:
        """The index by key, without entries whose files are missing."""
        entries = super().read().items()
        return {key: one for key, one in entries if all((self.folder / name).is_file() for name in one["files"])}

    def add(self, entry: Entry) -> None:
        """Store the surveys of one more row group: the files first, so that the index is always true."""
        names = [f"{entry['key']}-{number}.npz" for number in range(len(entry["surveys"]))]
        for name, seen in zip(names, entry["surveys"], strict=True):
            seen.save(self.folder / name)
        super().add({"key": entry["key"], "files": names})


def variants_of(rules: Rules) -> list[tuple[str, Rules]]:
    """The rules, and variants with one threshold changed, by name.

    Example:
        >>> [name for name, _ in variants_of(Rules())][:3]
        ['as asked', 'at least 1 tags', 'at least 3 tags']
    """
    variants = [(f"at least {least} tags", replace(rules, least_tags=least)) for least in LEAST_TAGS]
    other = "kept" if rules.alphabetical else "dropped"
    variants.append((f"alphabetical lists {other}", replace(rules, alphabetical=not rules.alphabetical)))
    if rules.similar:
        variants.append(("similar ones kept", replace(rules, similar=False)))
        shared = [overlap for overlap in OVERLAPS if overlap < rules.first]
        variants += [(f"more than {overlap} shared", replace(rules, overlap=overlap)) for overlap in shared]
        other = "kept" if rules.against == "seen" else "seen"
        variants.append((f"compared with {other} ones", replace(rules, against=other)))
    return [("as asked", rules), *(variant for variant in variants if variant[1] != rules)]


def dictionary_sizes(counts: NDArray[np.int64], least_count: int) -> list[dict[str, Any]]:
    """The size of the dictionary and its share of all listed tags, for several least counts.

    Example:
        >>> dictionary_sizes(np.array([5000, 20, 1]), 1000)[-3]
        {'least_count': 1000, 'tags': 1, 'share_of_listed': 0.9958}
    """
    listed, rows = max(int(counts.sum()), 1), []
    for least in sorted({*LEAST_COUNTS, least_count}):
        inside = counts[counts >= max(least, 1)]
        share = round(int(inside.sum()) / listed, 4)
        rows.append({"least_count": least, "tags": len(inside), "share_of_listed": share})
    return rows


def markdown(report: dict[str, Any]) -> str:
    """The variants and the dictionary sizes as Markdown tables.

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

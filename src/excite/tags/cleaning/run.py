"""The cleaning of a corpus by the rules of the paper's appendix, on one machine or many.

Each row is read twice: once for what the rules need (a survey; resumable), once to write the kept rows. In between the
rules are SQL on the surveys, which spills to the disk: memory does not grow with the corpus, but for 9 bytes an image.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import DataError, ExciteError
from excite.io.files import save_json, save_text
from excite.io.locks import Lock
from excite.jobs import Executor, Job
from excite.jobs.loop import no_progress, run
from excite.tags.cleaning.rules import KEPT, RULES, CorpusSurvey, Rules
from excite.tags.cleaning.steps import CleaningSteps, RowGroupVerdicts, SurveyStore, dropped_schema, kept_schema
from excite.tags.corpus import ColumnNames, RowGroupWriter
from excite.tags.database import database
from excite.tags.dictionary import TagNormaliser, dictionary_beside
from excite.tags.formats.parquet import open_corpus

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from excite.jobs import Runner
    from excite.jobs.loop import Progress
    from excite.tags.corpus import Corpus

LEAST_TAGS = (1, 3, 5, 8, 10, 15)
OVERLAPS = (2, 3, 4)
LEAST_COUNTS = (10, 30, 100, 300, 1000, 3000, 10_000)
THREADS = 4  # of the database, at most: each takes memory


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
        corpus, skipped = open_corpus(self.source, self.columns, self.work)
        if not corpus.rows:
            raise DataError(f"{self.source} has no rows: there is nothing to clean")
        steps = CleaningSteps(corpus.columns, self.normaliser, self.rules.first)
        spill = self.work / "spill"
        shutil.rmtree(spill, ignore_errors=True)  # of a run that was killed
        threads = min(THREADS, os.cpu_count() or 1)
        with Executor.of(self.workers).start(steps) as runner, database(spill, threads) as tables:
            survey = self._survey(tables, corpus, steps, runner)
            verdicts, like = survey.verdicts(self.rules)
            report = self._report(survey, verdicts, dict(skipped))
            variants = self._variants(survey, verdicts) if self.variants else None
            survey.dictionary(self.rules).save(dictionary_beside(self.out))
            self._write(corpus, verdicts, like, steps, runner)
        if variants is not None:
            save_json(variants, self.out.with_suffix(".choices.json"))
            save_text(markdown(variants), self.out.with_suffix(".choices.md"))
        save_json(report, self.out.with_suffix(".report.json"))
        return report

    def _survey(self, tables: Any, corpus: Corpus, steps: CleaningSteps, runner: Runner) -> CorpusSurvey:
        """Survey the row groups that are not surveyed yet, and merge all surveys."""
        store = SurveyStore(self.work / "surveys")
        entries = run(steps, corpus.row_groups, store, workers=runner)
        keys = [entry["key"] for entry in self.progress(entries, len(corpus.row_groups), "row groups surveyed")]
        store.check(keys)
        images, counts = ([store.path(key, table) for key in keys] for table in ("images", "counts"))
        return CorpusSurvey(tables, images, counts)

    def _write(
        self,
        corpus: Corpus,
        verdicts: NDArray[np.uint8],
        like: NDArray[np.int64],
        steps: CleaningSteps,
        runner: Runner,
    ) -> None:
        """Write the kept and the dropped images."""
        tasks = (
            RowGroupVerdicts(group, verdicts[rows], like[rows])
            for group in corpus.row_groups
            for rows in [slice(group.first, group.first + group.rows)]
        )
        jobs = (Job(task, steps.key(task)) for task in tasks)
        dropped_file = self.out.with_suffix(".dropped.parquet")
        with RowGroupWriter(self.out, kept_schema()) as kept, RowGroupWriter(dropped_file, dropped_schema()) as dropped:
            for _, outcome in self.progress(runner(jobs), len(corpus.row_groups), "row groups written"):
                if isinstance(outcome, ExciteError):
                    raise outcome
                for batch in outcome["kept"]:
                    kept.add(batch)
                for batch in outcome["dropped"]:
                    dropped.add(batch)

    def _report(self, survey: CorpusSurvey, verdicts: NDArray[np.uint8], skipped: dict[str, int]) -> dict[str, Any]:
        numbers = numbers_by_rule(verdicts)
        left_out = {rule for rule in ("alphabetical", "similar") if not getattr(self.rules, rule)}
        return {
            "read": survey.rows + sum(skipped.values()),
            "kept": int((verdicts == KEPT).sum()),
            "dropped": {**skipped, **{rule: n for rule, n in numbers.items() if rule not in left_out}},
            "tags": len(survey.dictionary(self.rules)),
            "different_tags": survey.different_tags,
            "listed_tags": survey.listed_tags,
            "users": survey.users,
            "without_user": survey.without_user,
            "changed": survey.changes,
            "rules": asdict(self.rules),
            "normalising": asdict(self.normaliser),
        }

    def _variants(self, survey: CorpusSurvey, verdicts: NDArray[np.uint8]) -> dict[str, Any]:
        """The number of images that other rules would keep, and the sizes of other dictionaries."""
        table = []
        for name, rules in variants_of(self.rules):
            found = verdicts if rules == self.rules else survey.verdicts(rules)[0]
            numbers = numbers_by_rule(found)
            counted = {rule: numbers[rule] for rule in ("few_tags", "alphabetical", "similar")}
            table.append({"choice": name, "kept": int((found == KEPT).sum()), **counted})
        sizes = [
            {"least_count": least, **survey.dictionary_size(least)}
            for least in sorted({*LEAST_COUNTS, self.rules.least_count})
        ]
        return {"read": survey.rows, "pictures": table, "dictionary": sizes}


def numbers_by_rule(verdicts: NDArray[np.uint8]) -> dict[str, int]:
    """The number of images that each rule drops.

    Example:
        >>> numbers_by_rule(np.array([0, 3, 3, 5], np.uint8))["few_tags"]
        2
    """
    numbers = np.bincount(verdicts, minlength=len(RULES) + 1)[1:]
    return dict(zip(RULES, numbers.tolist(), strict=True))


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

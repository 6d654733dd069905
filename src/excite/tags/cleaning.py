"""The cleaning of a corpus by the rules of the paper's appendix, on one machine or many.

Each row is read twice: once for what the rules need (a survey; resumable), once to write the kept rows. In between the
rules are SQL on the surveys, which spills to the disk: memory does not grow with the corpus, but for 9 bytes an image.
"""

import os
import shutil
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from excite.errors import DataError, ExciteError
from excite.images import file_state
from excite.io.cache import fingerprint
from excite.io.files import Lock, atomic_write, save_json, save_text
from excite.io.text import templates_of
from excite.jobs import Entry, Executor, Job, Runner
from excite.jobs.loop import Progress, no_progress, run
from excite.jobs.parquet import arrow
from excite.tags import database
from excite.tags.corpus import ColumnNames, Corpus, RowGroup, row_group_writer
from excite.tags.dictionary import TagNormaliser, dictionary_beside, normalise_lists
from excite.tags.rules import ASK, KEPT, RULES, CorpusSurvey, Rules, usual_count
from excite.tags.text_files import open_corpus

VERSION = 2  # of the survey
TABLES = ("images", "counts")


@dataclass(frozen=True, eq=False)
class RowGroupVerdicts:
    """The verdict [rows] on each image of a row group, and the row [rows] of the image that it repeats, or -1."""

    row_group: RowGroup
    verdicts: NDArray[np.uint8]
    like: NDArray[np.int64]


@dataclass(frozen=True)
class CleaningSteps:
    """The steps that run in parallel, survey and split, as one work for `excite.jobs`; the task's type selects one."""

    columns: ColumnNames
    normaliser: TagNormaliser
    first: int

    def key(self, task: RowGroup | RowGroupVerdicts) -> str:
        """Changes when the file, the rules or the verdicts do."""
        group, content = (task, b"") if isinstance(task, RowGroup) else (task.row_group, task.verdicts.tobytes())
        facts = [VERSION, repr(self), file_state(group.path), group.index, group.first, group.rows]
        return fingerprint(facts, content, digits=32)

    def __call__(self, task: RowGroup | RowGroupVerdicts) -> dict[str, Any]:
        """The result of the step."""
        return self._survey(task) if isinstance(task, RowGroup) else self._split(task)

    def _survey(self, group: RowGroup) -> dict[str, Any]:
        """The tables that `excite.tags.rules.CorpusSurvey` merges."""
        row, found = group.first, []
        for read in Corpus.row_group_batches(group, self.columns, encoded=True):
            found.append(survey(read, self.normaliser, self.first, row))
            row += read.num_rows
        return dict(zip(TABLES, map(arrow().concat_tables, zip(*found, strict=True)), strict=True))

    def _split(self, task: RowGroupVerdicts) -> dict[str, Any]:
        """Pairs of record batches: the kept images, with normalised tags, and the dropped ones, with the rule."""
        pa = arrow()
        batches, start = [], 0
        for batch in Corpus.row_group_batches(task.row_group, self.columns, encoded=True):
            rows = slice(start, start + batch.num_rows)
            start = rows.stop
            stays = batch.filter(pa.array(task.verdicts[rows] == KEPT))
            tags, _ = normalise_lists(stays["tags"], self.normaliser)
            kept = pa.record_batch([stays["image"], tags, stays["user"]], schema=schemas()[0])
            gone = np.flatnonzero(task.verdicts[rows])
            codes, like = task.verdicts[rows][gone].astype(np.int32) - 1, task.like[rows][gone]
            columns = [
                pa.array(task.row_group.first + rows.start + gone),
                *(batch[name].take(pa.array(gone)) for name in ("image", "user")),
                pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(RULES)),
                pa.array(like, mask=like < 0),  # the row of the similar image
            ]
            batches.append((kept, pa.record_batch(columns, schema=schemas()[1])))
        return {"batches": batches}


def survey(batch: Any, normaliser: TagNormaliser, first: int = 5, row: int = 0) -> tuple[Any, Any]:
    """A table of the images of a record batch, and one of how often each tag is listed and how many were changed."""
    pa = arrow()
    tags, changes = normalise_lists(batch["tags"], normaliser)
    tags = tags.cast(pa.list_(pa.string()))  # duckdb 2.0 fails at empty lists before the first word of a dictionary
    rows = np.arange(row, row + batch.num_rows)
    with database() as tables:
        tables.register("batch", pa.table({"row": rows, "image": batch["image"], "tags": tags, "user": batch["user"]}))
        tables.execute(f"SET VARIABLE first = {first}")
        images = tables.sql(ASK["survey"]).to_arrow_table()
        listed = tables.sql(ASK["count"]).to_arrow_table()
    texts = pa.chunked_array([listed["tag"].cast(pa.string()).combine_chunks(), pa.array(list(changes), pa.string())])
    counts = pa.chunked_array([listed["count"].combine_chunks(), pa.array(list(changes.values()), pa.int64())])
    kinds = np.repeat(["tag", "change"], [len(listed), len(changes)])
    return images, pa.table({"kind": kinds, "text": texts, "count": counts})


@cache
def schemas() -> tuple[Any, Any]:
    """The columns of a cleaned corpus, and of the dropped images, with dictionaries of tags and rules."""
    pa = arrow()
    words, text, number = pa.dictionary(pa.int32(), pa.string()), pa.string(), pa.int64()
    kept = [("image", text), ("tags", pa.list_(words)), ("user", text)]
    dropped = [("row", number), ("image", text), ("user", text), ("rule", words), ("like", number)]
    return pa.schema(kept), pa.schema(dropped)


@dataclass
class SurveyStore:
    """The surveys of row groups: two Parquet files each, named by the key. What is there is not surveyed again."""

    folder: Path

    def path(self, key: str, table: str) -> Path:
        """The file of a table."""
        return self.folder / f"{key}.{table}.parquet"

    def read(self) -> dict[str, Entry]:
        """The keys of complete surveys: the last file is written last."""
        keys = [path.name.split(".")[0] for path in self.folder.glob(f"*.{TABLES[-1]}.parquet")]
        return {key: {"key": key} for key in keys if self.path(key, TABLES[0]).is_file()}

    def add(self, entry: Entry) -> None:
        """Store the survey of one more row group."""
        for table in TABLES:
            write = partial(arrow().parquet.write_table, entry.pop(table), compression="zstd")
            atomic_write(self.path(entry["key"], table), write)

    def close(self) -> None:
        """Everything is on the disk already."""

    def check(self, keys: list[str]) -> None:
        """Fail with the name of a damaged survey: a power cut may leave one."""
        pa = arrow()
        for path in (self.path(key, table) for key in keys for table in TABLES):
            try:
                pa.parquet.read_metadata(path)
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
                reason = " ".join(str(error).split())[:200]
                raise DataError(f"{path} is damaged ({reason}): remove it and start again") from None


@dataclass(eq=False)
class CleaningRun:
    """The cleaning of a corpus.

    Beside the kept images in ``out`` it writes the dictionary (``.tags.csv``), the dropped images with the reason
    (``.dropped.parquet``), and a report (``.report.json``).
    """

    source: Path  # Parquet, CSV or JSON Lines
    out: Path
    rules: Rules = field(default_factory=Rules)
    normaliser: TagNormaliser = field(default_factory=TagNormaliser)
    columns: ColumnNames = field(default_factory=ColumnNames)
    workers: int | Executor = 1  # processes, or an executor
    progress: Progress = no_progress
    variants: bool = False  # also report the effect of other thresholds (.choices.json and .choices.md)

    def __post_init__(self) -> None:
        if self.out.suffix != ".parquet":
            raise DataError(f"{self.out} would be Parquet: let its name end in .parquet")
        if self.out.resolve() == self.source.resolve():
            raise DataError(f"{self.out} is the corpus itself: give another --out")

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
            reason = error.strerror or error
            raise ExciteError(f"cannot write {str(self.out)!r}: {reason}; has the disk room?") from None
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
        threads = min(4, os.cpu_count() or 1)  # each takes memory
        with Executor.of(self.workers).start(steps) as runner, database(spill, threads, self.work) as tables:
            survey = self._survey(tables, corpus, steps, runner)
            self.rules = replace(self.rules, least_count=self.rules.least_count or usual_count(survey.rows))
            verdicts, like = survey.verdicts(self.rules)
            report = self._report(survey, verdicts, dict(skipped))
            variants = self._variants(survey, verdicts) if self.variants else None
            survey.dictionary(self.rules).save(dictionary_beside(self.out))
            tasks = [RowGroupVerdicts(group, verdicts[group.slice], like[group.slice]) for group in corpus.row_groups]
            self._write(tasks, steps, runner)
        if variants is not None:
            save_json(variants, self.out.with_suffix(".choices.json"))
            text = templates_of("excite.tags").get_template("choices.md").render(variants)
            save_text(text, self.out.with_suffix(".choices.md"))
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

    def _write(self, tasks: list[RowGroupVerdicts], steps: CleaningSteps, runner: Runner) -> None:
        """Write the kept and the dropped images."""
        jobs = (Job(task, steps.key(task)) for task in tasks)
        (kept_schema, dropped_schema), dropped_file = schemas(), self.out.with_suffix(".dropped.parquet")
        with row_group_writer(self.out, kept_schema) as kept, row_group_writer(dropped_file, dropped_schema) as dropped:
            for _, outcome in self.progress(runner(jobs), len(tasks), "row groups written"):
                if isinstance(outcome, ExciteError):
                    raise outcome
                for kept_batch, dropped_batch in outcome["batches"]:
                    kept.add(kept_batch)
                    dropped.add(dropped_batch)

    def _report(self, survey: CorpusSurvey, verdicts: NDArray[np.uint8], skipped: dict[str, int]) -> dict[str, Any]:
        numbers = numbers_by_rule(verdicts)
        left_out = {rule for rule in ("alphabetical", "similar") if not getattr(self.rules, rule)}
        left_out |= set() if survey.users else {"similar"}  # nobody's images can be compared
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
            for least in sorted({10, 30, 100, 300, 1000, 3000, 10_000, self.rules.least_count})
        ]
        return {"read": survey.rows, "pictures": table, "dictionary": sizes}


def numbers_by_rule(verdicts: NDArray[np.uint8]) -> dict[str, int]:
    """The number of images that each rule drops."""
    numbers = np.bincount(verdicts, minlength=len(RULES) + 1)[1:]
    return dict(zip(RULES, numbers.tolist(), strict=True))


def variants_of(rules: Rules) -> list[tuple[str, Rules]]:
    """The rules, and variants with one threshold changed, by name."""
    variants = [(f"at least {least} tags", replace(rules, least_tags=least)) for least in (1, 3, 5, 8, 10, 15)]
    other = "kept" if rules.alphabetical else "dropped"
    variants.append((f"alphabetical lists {other}", replace(rules, alphabetical=not rules.alphabetical)))
    if rules.similar:
        variants.append(("similar ones kept", replace(rules, similar=False)))
        shared = range(2, min(5, rules.first))
        variants += [(f"more than {overlap} shared", replace(rules, overlap=overlap)) for overlap in shared]
        other = "kept" if rules.against == "seen" else "seen"
        variants.append((f"compared with {other} ones", replace(rules, against=other)))
    return [("as asked", rules), *(variant for variant in variants if variant[1] != rules)]

"""The steps of a cleaning that run in parallel, on one machine or many: survey a part of the corpus, and split it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import DataError
from excite.images import file_state
from excite.io.files import atomic_write
from excite.jobs.parquet import arrow
from excite.tags.cleaning.rules import COUNT, KEPT, RULES, SURVEY
from excite.tags.corpus import Corpus, RowGroup
from excite.tags.database import database
from excite.tags.dictionary import normalise_lists

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from excite.jobs import Entry
    from excite.tags.corpus import ColumnNames
    from excite.tags.dictionary import TagNormaliser

VERSION = 2  # of the survey
TABLES = ("images", "counts")


@dataclass(frozen=True, eq=False)
class RowGroupVerdicts:
    """The verdict [rows] on each image of a row group, and the row [rows] of the image that it repeats, or -1."""

    row_group: RowGroup
    verdicts: NDArray[np.uint8] = field(repr=False)
    like: NDArray[np.int64] = field(repr=False)


@dataclass(frozen=True)
class CleaningSteps:
    """Both steps as one work for `excite.jobs`; the type of the task selects the step."""

    columns: ColumnNames
    normaliser: TagNormaliser
    first: int

    def key(self, task: RowGroup | RowGroupVerdicts) -> str:
        """Changes when the file, the rules or the verdicts do."""
        group, content = (task, b"") if isinstance(task, RowGroup) else (task.row_group, task.verdicts.tobytes())
        facts = [VERSION, repr(self), file_state(group.path), group.index, group.first, group.rows]
        return hashlib.sha256(json.dumps(facts).encode() + content).hexdigest()[:32]

    def __call__(self, task: RowGroup | RowGroupVerdicts) -> dict[str, Any]:
        """The result of the step."""
        return self._survey(task) if isinstance(task, RowGroup) else self._split(task)

    def _survey(self, group: RowGroup) -> dict[str, Any]:
        """The tables that `excite.tags.cleaning.rules.CorpusSurvey` merges."""
        pa, row = arrow(), group.first
        found: dict[str, list[Any]] = {name: [] for name in TABLES}
        for read in Corpus.row_group_batches(group, self.columns, encoded=True):
            images, counts = survey(read, self.normaliser, self.first, row)
            row += read.num_rows
            found["images"].append(images)
            found["counts"].append(counts)
        return {name: pa.concat_tables(tables) for name, tables in found.items()}

    def _split(self, task: RowGroupVerdicts) -> dict[str, list[Any]]:
        """Record batches of the kept images, with normalised tags, and of the dropped ones, with the rule."""
        pa = arrow()
        kept, dropped, start = [], [], 0
        for batch in Corpus.row_group_batches(task.row_group, self.columns, encoded=True):
            rows = slice(start, start + batch.num_rows)
            start = rows.stop
            stays = batch.filter(pa.array(task.verdicts[rows] == KEPT))
            tags, _ = normalise_lists(stays.column("tags"), self.normaliser)
            kept.append(pa.record_batch([stays.column("image"), tags, stays.column("user")], schema=kept_schema()))
            dropped.append(_dropped(batch, task, rows))
        return {"kept": kept, "dropped": dropped}


def survey(batch: Any, normaliser: TagNormaliser, first: int = 5, row: int = 0) -> tuple[Any, Any]:
    """What the rules need to know of a record batch of a corpus.

    Args:
        batch: the images.
        normaliser: of the tags.
        first: the number of tags that are compared.
        row: the number of its first row.

    Returns:
        A table of its images, and one of how often each tag is listed and how many were changed.

    Example:
        >>> batch = arrow().record_batch({"image": ["a.jpg"], "tags": [["Sea", "sky "]], "user": ["ann"]})
        >>> images, counts = survey(batch, TagNormaliser())  # doctest: +SKIP
        >>> counts.to_pylist()  # doctest: +SKIP
        [{'kind': 'tag', 'text': 'sea', 'count': 1}, ...]
    """
    pa = arrow()
    tags, changes = normalise_lists(batch.column("tags"), normaliser)
    tags = tags.cast(pa.list_(pa.string()))  # duckdb 2.0 fails at empty lists before the first word of a dictionary
    rows = pa.array(np.arange(row, row + batch.num_rows))
    names = ["row", "image", "tags", "user"]
    table = pa.table([rows, batch.column("image"), tags, batch.column("user")], names=names)
    with database() as tables:
        tables.register("batch", table)
        images = tables.sql(SURVEY.format(first=first)).to_arrow_table()
        listed = tables.sql(COUNT).to_arrow_table()
    texts = pa.chunked_array([listed["tag"].cast(pa.string()).combine_chunks(), pa.array(list(changes), pa.string())])
    counts = pa.chunked_array([listed["count"].combine_chunks(), pa.array(list(changes.values()), pa.int64())])
    kinds = pa.array(np.repeat(["tag", "change"], [len(listed), len(changes)]))
    return images, pa.table({"kind": kinds, "text": texts, "count": counts})


def _dropped(batch: Any, task: RowGroupVerdicts, rows: slice) -> Any:
    pa = arrow()
    gone = np.flatnonzero(task.verdicts[rows])
    rules = pa.DictionaryArray.from_arrays(pa.array(task.verdicts[rows][gone].astype(np.int32) - 1), pa.array(RULES))
    like = task.like[rows][gone]
    columns = [
        pa.array(task.row_group.first + rows.start + gone),
        batch.column("image").take(pa.array(gone)),
        batch.column("user").take(pa.array(gone)),
        rules,
        pa.array(like, mask=like < 0),
    ]
    return pa.record_batch(columns, schema=dropped_schema())


@cache
def kept_schema() -> Any:
    """The columns of a cleaned corpus, tags dictionary-encoded."""
    pa = arrow()
    words = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([("image", pa.string()), ("tags", pa.list_(words)), ("user", pa.string())])


@cache
def dropped_schema() -> Any:
    """The columns of the dropped images: ``like`` is the row of the similar image."""
    pa = arrow()
    words = pa.dictionary(pa.int32(), pa.string())
    names = [("row", pa.int64()), ("image", pa.string()), ("user", pa.string()), ("rule", words), ("like", pa.int64())]
    return pa.schema(names)


class SurveyStore:
    """The surveys of row groups: two Parquet files each, named by the key. What is there is not surveyed again.

    Args:
        folder: of the files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

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
            found = entry.pop(table)
            atomic_write(
                self.path(entry["key"], table), partial(arrow().parquet.write_table, found, compression="zstd")
            )

    def close(self) -> None:
        """Everything is on the disk already."""

    def clear(self) -> None:
        """Remove all surveys."""
        for path in self.folder.glob("*.parquet"):
            path.unlink(missing_ok=True)

    def check(self, keys: list[str]) -> None:
        """Fail with the name of a damaged survey: a power cut may leave one.

        Raises:
            DataError: a file is no Parquet file.
        """
        pa = arrow()
        for path in (self.path(key, table) for key in keys for table in TABLES):
            try:
                pa.parquet.read_metadata(path)
            except (pa.ArrowException, OSError) as error:
                reason = " ".join(str(error).split())[:200]
                raise DataError(f"{path} is damaged ({reason}): remove it and start again") from None

"""Readers of what excite keeps for itself: ledgers, shards and their indexes, surveys, features, checkpoints."""

import io
import json
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import torch
from fuzzed import Reader
from fuzzed_tags import ROWS, parquet_of
from torch import nn

from excite.autolabel.files import open_own_results
from excite.jobs import ResultStore
from excite.jobs.parquet import arrow, save_parquet
from excite.tags import database
from excite.tags.cleaning import SurveyStore, survey
from excite.tags.dictionary import TagNormaliser
from excite.tags.images.shards import Shards, make_index, read_index
from excite.tags.rules import CorpusSurvey, Rules
from excite.training.features import FeatureStore
from excite.training.output_layer import Output
from excite.training.sgd import OutputTrainer, SGDOptions
from excite.training.tags.loop import TrainingState, read_checkpoint, save_checkpoint
from excite.training.tags.model import Distributed, Model

__all__ = ["READERS"]

ENTRIES = [{"key": f"k{k}", "image": f"{k}.jpg", "boxes": [[1, 2, 3, k]], "score": 0.5 * k} for k in range(4)]


KEY = "the same training"


def _shard():
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, content in (("a.png", b"\x89PNG" * 40), ("a.json", b"{}"), ("deep/" * 30 + "b.jpg", b"\xff\xd8" * 9)):
            about = tarfile.TarInfo(name)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content))
    return [file.getvalue()]


def _shards(folder):
    return make_index(folder / "pics.tar").columns.tolist()


def _shard_pictures(folder):
    """As training reads them; the index is written beside the shard, so the shard is moved to where that may be."""
    shard = folder / "made/pics.tar"
    shard.write_bytes((folder / "pics.tar").read_bytes())
    return Shards((str(shard),), folder / "made/cache").encoded("a.png")


def _index_bytes():
    numbers = np.array([1, 1000, 5, 2, 10, 20, 0, 512, 100, 200], np.uint64)
    file = io.BytesIO()
    np.save(file, numbers)
    return [file.getvalue()]


def _index(folder):
    index = read_index(folder / "pics.tar.index")
    return None if index is None else index.columns.tolist()


def _survey_bytes():
    images, _ = survey(arrow().RecordBatch.from_pydict(ROWS), TagNormaliser())
    return [parquet_of(images)]


def _survey_counts(folder):
    _, counts = survey(arrow().RecordBatch.from_pydict(ROWS), TagNormaliser())
    arrow().parquet.write_table(counts, SurveyStore(folder).path("key", "counts"))


def _survey(folder):
    """The images of a survey, beside good counts."""
    store = SurveyStore(folder)
    store.check(["key"])
    with database(reads=folder) as tables:
        merged = CorpusSurvey(tables, [store.path("key", "images")], [store.path("key", "counts")])
        merged.verdicts(Rules())


def _ledger_part():
    with tempfile.TemporaryDirectory() as folder:
        save_parquet(Path(folder), ENTRIES)
        return [Path(folder, "part-00000.parquet").read_bytes()]


def _read_all(folder):
    book = ResultStore(folder / "records.jsonl", ("image", "boxes"), parquet=True).read()
    return [book[key] for key in book]


def _fit():
    torch.manual_seed(0)
    return OutputTrainer(Output(nn.Linear(5, 3), ()), SGDOptions())


def _saved_by(save):
    """The bytes that something writes to a file."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "saved")
        save(place)
        return place.read_bytes()


def _fits():
    trained = _fit()
    trained.losses = [3.0, 2.5]
    return [_saved_by(lambda place: trained.save(place, KEY))]


def _model():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    return Model(network, "1", Output(network[1], ()), SGDOptions(), Distributed(), "output")


def _checkpoints():
    state = TrainingState(step=3, loss=1.5, pictures=7)
    state.unreadable.add(4)
    return [_saved_by(lambda place: save_checkpoint(place, KEY, _model(), state))]


def _ledger_lines():
    return ["".join(json.dumps(entry) + "\n" for entry in ENTRIES).encode()]


def _features(folder):
    store = FeatureStore(folder / "kept")
    found = store.read()
    return [store.features([key]) for key in found]


def _feature_lines():
    return [
        "".join(
            json.dumps({"key": f"k{k}", "picture": "a", "start": 24 * k, "shape": [3, 4]}) + "\n" for k in range(2)
        ).encode()
    ]


def _feature_numbers(folder):
    (folder / "kept").mkdir(parents=True, exist_ok=True)
    (folder / "kept/features.bin").write_bytes(b"\0\x3c" * 24)


CHECKPOINT = (b"weight.", b"speed.", b"F32", b"losses", b"facts", b"data_offsets", b"__metadata__")


READERS = (
    Reader("shard", "excite.tags.images.shards.make_index", "pics.tar", _shards, _shard, "tar"),
    Reader("shard pictures", "excite.tags.images.Shards", "pics.tar", _shard_pictures, _shard, "tar"),
    Reader("shard index", "excite.tags.images.shards.read_index", "pics.tar.index", _index, _index_bytes),
    Reader(
        "survey",
        "excite.tags.rules.CorpusSurvey",
        "key.images.parquet",
        _survey,
        _survey_bytes,
        tokens=(b"PAR1", b"element", b"firsts"),
        around=_survey_counts,
    ),
    Reader(
        "ledger lines",
        "excite.jobs.ResultStore",
        "records.jsonl",
        lambda folder: ResultStore(folder / "records.jsonl", ("image",)).read(),
        _ledger_lines,
        "json lines",
        changes=True,
    ),
    Reader(
        "ledger of boxes",
        "excite.autolabel.files.open_own_results",
        "records.jsonl",
        lambda folder: open_own_results(folder / "records.jsonl", ("image",)).read(),
        _ledger_lines,
        "json lines",
        changes=True,
    ),
    Reader(
        "ledger Parquet",
        "excite.jobs.ResultStore",
        "records.parquet/part-00000.parquet",
        _read_all,
        _ledger_part,
        tokens=(b"PAR1", b"excite", b"odd_row"),
    ),
    Reader(
        "features",
        "excite.training.features.FeatureStore",
        "kept/index.jsonl",
        _features,
        _feature_lines,
        "json lines",
        around=_feature_numbers,
        changes=True,
    ),
    Reader(
        "fine-tuning checkpoint",
        "excite.training.sgd.OutputTrainer.resume",
        "checkpoint",
        lambda folder: _fit().resume(folder / "checkpoint", KEY),
        _fits,
        "safetensors",
        CHECKPOINT,
    ),
    Reader(
        "tag training checkpoint",
        "excite.training.tags.loop.read_checkpoint",
        "checkpoint",
        lambda folder: read_checkpoint(folder / "checkpoint", KEY, _model()),
        _checkpoints,
        "safetensors",
        CHECKPOINT,
    ),
)

"""Readers of tag corpora and of what excite keeps for itself: ledgers, surveys, indexes, checkpoints."""

import gzip
import io
import json
import sys
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from fuzzed import Reader
from torch import nn

sys.path.append(str(Path(__file__).parents[1]))

from excite.boxing.ledgers import own_ledger
from excite.ledger import open_ledger
from excite.ledger.columns import Columns, arrow
from excite.tags.cleaning.survey import Survey, survey
from excite.tags.corpus import ColumnNames, Corpus
from excite.tags.counting.visual import learnt_tags
from excite.tags.dictionary import Dictionary
from excite.tags.normalising import Normalising
from excite.tags.pictures.shards import Shards
from excite.tags.pictures.tar_index import make_index, read_index
from excite.tags.reading.caption_files import read_captions
from excite.tags.reading.stop_words import read_stop_words
from excite.tags.reading.text_files import open_any
from excite.training.features import Shelf
from excite.training.fitting import Descent, Fit
from excite.training.output_layer import Output
from excite.training.tags.checkpoints import Standing, read_checkpoint, save_checkpoint
from excite.training.tags.together import Together
from excite.training.tags.trainee import Trainee

__all__ = ["READERS"]

CSV = 'image,tags,user\n1.jpg,"cat, sofa",ann\n2.jpg,"[""dog"", ""grass""]",bob\n3.jpg,,\n'
JSONL = '{"image": "1.jpg", "tags": ["cat", "sofa"], "user": 7}\n{"image": "2.jpg", "tags": "dog; grass", "user": null}\n'
COCO = {"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{"image_id": 1, "caption": "A dog on grass."}]}
ENTRIES = [{"key": f"k{k}", "image": f"{k}.jpg", "boxes": [[1, 2, 3, k]], "score": 0.5 * k} for k in range(4)]
ROWS = {"image": ["1.jpg", "2.jpg"], "tags": [["cat", "sofa"], ["dog"]], "user": ["ann", None]}
KEY = "the same training"


def _corpus(name):
    """Read through as cleaning does."""

    def read(folder):
        corpus, _ = open_any(folder / name, ColumnNames(users_needed=False), folder / "made")
        for batch in corpus.batches():
            survey(batch, Normalising())

    return read


def _parquet_of(table, **options):
    file = io.BytesIO()
    arrow().parquet.write_table(table, file, **options)
    return file.getvalue()


def _parquets():
    pa = arrow()
    plain = pa.table({"image": ["1.jpg", "2.jpg"], "tags": ["cat, sofa", "dog"], "user": [1, 2]})
    return [
        _parquet_of(pa.table(ROWS)),
        _parquet_of(pa.table(ROWS), compression="zstd", row_group_size=1, data_page_version="2.0"),
        _parquet_of(plain, compression="gzip", use_dictionary=False),
    ]


def _parquet_bombs():
    pa = arrow()
    same = pa.table({"image": ["1.jpg"] * 200_000, "tags": [["cat"] * 8] * 200_000, "user": ["ann"] * 200_000})
    long = pa.table({"image": ["1.jpg"], "tags": [["a" * 40_000_000]], "user": ["ann"]})
    return [_parquet_of(same), _parquet_of(long, compression="zstd"), b"PAR1" + b"\xff\xff\xff\x7fPAR1", b"PAR1" * 3]


def _gzip_bombs():
    zeros = gzip.compress(b"\0" * 40_000_000, 6, mtime=0)
    rows = gzip.compress(b"image,tags,user\n" + b"a.jpg,cat,ann\n" * 300_000, 6, mtime=0)
    quoted = gzip.compress(b'image,tags,user\na.jpg,"' + b"x\n" * 9_000_000, 6, mtime=0)
    return [zeros, rows, quoted, gzip.compress(rows, mtime=0)]


def _shard():
    import sys

    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, content in (("a.png", b"\x89PNG" * 40), ("a.json", b"{}"), ("deep/" * 30 + "b.jpg", b"\xff\xd8" * 9)):
            about = tarfile.TarInfo(name)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content))
    return [file.getvalue()]


def _shards(folder):
    index = make_index(folder / "pics.tar")
    for name in ("a.png", "a", "deep/" * 30 + "b.jpg"):
        found = index.find([name])
        if found is not None and found[1] < 2**20:
            assert len(found) == 2
    return index


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
    return None if index is None else index.find(["a.png", "b.png"])


def _survey_bytes(folder=Path("/dev/shm")):
    pa = arrow()
    seen = survey(pa.RecordBatch.from_pydict(ROWS), Normalising())
    path = seen.save(folder / "excite-fuzz-survey.npz")
    content = path.read_bytes()
    path.unlink()
    return [content]


def _ledger_part():
    return [_parquet_of(Columns.of(ENTRIES).table(ENTRIES)), _parquet_of(Columns.of(ENTRIES).table([*ENTRIES, {"key": "odd", "other": 1}]))]


def _read_all(folder):
    book = open_ledger(folder / "records.jsonl", ("image", "boxes"), parquet=True).read()
    return [book[key] for key in book]


def _fit():
    torch.manual_seed(0)
    return Fit(Output(nn.Linear(5, 3), ()), Descent())


def _saved_by(save, place=Path("/dev/shm/excite-fuzz-checkpoint")):
    save(place)
    content = place.read_bytes()
    place.unlink()
    return content


def _fits():
    trained = _fit()
    trained.losses = [3.0, 2.5]
    return [_saved_by(lambda place: trained.save(place, KEY))]


def _trainee():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    return Trainee(network, "1", Output(network[1], ()), everything=False, momentum=0.9, processes=Together())


def _checkpoints():
    standing = Standing(step=3, loss=1.5, pictures=7)
    standing.failures.rows.add(4)
    return [_saved_by(lambda place: save_checkpoint(place, KEY, _trainee(), standing))]


def _ledger_lines():
    return ["".join(json.dumps(entry) + "\n" for entry in ENTRIES).encode()]


def _features(folder):
    shelf = Shelf(folder / "kept")
    found = shelf.read()
    return [shelf.features([key]) for key in found]


def _feature_lines():
    return ["".join(json.dumps({"key": f"k{k}", "picture": "a", "start": 24 * k, "shape": [3, 4]}) + "\n" for k in range(2)).encode()]


def _feature_numbers(folder):
    (folder / "kept").mkdir(parents=True, exist_ok=True)
    (folder / "kept/features.bin").write_bytes(b"\0\x3c" * 24)


def _texts(*texts):
    return lambda: [text.encode() for text in texts]


def _packed(text):
    return lambda: [gzip.compress(text.encode(), mtime=0)]


def _captioned(name, text, form):
    entry = "excite.tags.reading.caption_files.read_captions"
    return Reader(f"captions {name}", entry, f"captions.{name}", lambda folder: read_captions(folder / f"captions.{name}", Counter()), _texts(text), form)


CORPUS = "excite.tags.reading.text_files.open_any, Corpus.batches, survey"
CHECKPOINT = (b"weight.", b"speed.", b"F32", b"losses", b"facts", b"data_offsets", b"__metadata__")
TOKENS = "1000092795.jpg#0\tTwo young guys .\n1000092795.jpg#1\tTwo men outside .\n"

READERS = (
    Reader("corpus CSV", CORPUS, "tags.csv", _corpus("tags.csv"), _texts(CSV), "csv"),
    Reader("corpus TSV", CORPUS, "tags.tsv", _corpus("tags.tsv"), _texts("image\ttags\n1.jpg\tcat, sofa\n2.jpg\tdog\n"), "csv"),
    Reader("corpus CSV.gz", CORPUS, "tags.csv.gz", _corpus("tags.csv.gz"), _packed(CSV), "gzip", hostile=_gzip_bombs),
    Reader("corpus JSON lines", CORPUS, "tags.jsonl", _corpus("tags.jsonl"), _texts(JSONL), "json lines"),
    Reader("corpus Parquet", CORPUS, "tags.parquet", _corpus("tags.parquet"), _parquets, tokens=(b"PAR1", b"element", b"image"), hostile=_parquet_bombs),
    _captioned("json", json.dumps(COCO), "json"),
    _captioned("jsonl", '{"image": "a.jpg", "captions": ["A dog.", "Grass."]}\n{"file_name": "b.jpg", "caption": "A cat."}\n', "json lines"),
    _captioned("csv", 'image,caption\na.jpg,"A dog, a cat."\nb.jpg,Grass.\n', "csv"),
    _captioned("token", TOKENS, "words"),
    Reader("stop words", "excite.tags.reading.stop_words.read_stop_words", "stop.txt", lambda folder: read_stop_words(folder / "stop.txt"), _texts("the\nA\n\nof\n"), "words"),
    Reader("dictionary", "excite.tags.dictionary.Dictionary.read", "kept.tags.csv", lambda folder: Dictionary.read(folder / "kept.tags.csv"), _texts("tag,count\nnature,30\ndog,10\n"), "csv"),
    Reader("measures", "excite.tags.counting.visual.learnt_tags", "measures.csv", lambda folder: learnt_tags(folder / "measures.csv"), _texts("tag,count,precision,share\ndog,9,0.6,0.02\nemu,8,,0\n"), "csv"),
    Reader("shard", "excite.tags.pictures.tar_index.make_index", "pics.tar", _shards, _shard, "tar"),
    Reader("shard pictures", "excite.tags.pictures.Shards", "pics.tar", _shard_pictures, _shard, "tar"),
    Reader("shard index", "excite.tags.pictures.tar_index.read_index", "pics.tar.index", _index, _index_bytes),
    Reader("survey", "excite.tags.cleaning.survey.Survey.read", "s.npz", lambda folder: Survey.read(folder / "s.npz"), _survey_bytes, "zip"),
    Reader("ledger lines", "excite.ledger.open_ledger", "records.jsonl", lambda folder: open_ledger(folder / "records.jsonl", ("image",)).read(), _ledger_lines, "json lines", changes=True),
    Reader("ledger of boxes", "excite.boxing.ledgers.own_ledger", "records.jsonl", lambda folder: own_ledger(folder / "records.jsonl", ("image",)).read(), _ledger_lines, "json lines", changes=True),
    Reader("ledger Parquet", "excite.ledger.open_ledger", "records.parquet/part-00000.parquet", _read_all, _ledger_part, tokens=(b"PAR1", b"excite", b"odd_row")),
    Reader("features", "excite.training.features.Shelf", "kept/index.jsonl", _features, _feature_lines, "json lines", around=_feature_numbers, changes=True),
    Reader("fine-tuning checkpoint", "excite.training.fitting.Fit.resume", "checkpoint", lambda folder: _fit().resume(folder / "checkpoint", KEY), _fits, "safetensors", CHECKPOINT),
    Reader("tag training checkpoint", "excite.training.tags.checkpoints.read_checkpoint", "checkpoint", lambda folder: read_checkpoint(folder / "checkpoint", KEY, _trainee()), _checkpoints, "safetensors", CHECKPOINT),
)

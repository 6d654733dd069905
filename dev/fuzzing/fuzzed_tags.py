"""Readers of tag corpora, captions and lists of words."""

import gzip
import io
import json
from collections import Counter

from fuzzed import Reader

from excite.jobs.parquet import arrow
from excite.tags.captions import read_captions, read_stop_words
from excite.tags.cleaning import survey
from excite.tags.corpus import ColumnNames
from excite.tags.dictionary import Dictionary, TagNormaliser
from excite.tags.statistics import learnt_tags
from excite.tags.text_files import open_corpus

__all__ = ["READERS", "ROWS", "parquet_of"]

CSV = 'image,tags,user\n1.jpg,"cat, sofa",ann\n2.jpg,"[""dog"", ""grass""]",bob\n3.jpg,,\n'


JSONL = (
    '{"image": "1.jpg", "tags": ["cat", "sofa"], "user": 7}\n{"image": "2.jpg", "tags": "dog; grass", "user": null}\n'
)


COCO = {"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{"image_id": 1, "caption": "A dog on grass."}]}


ROWS = {"image": ["1.jpg", "2.jpg"], "tags": [["cat", "sofa"], ["dog"]], "user": ["ann", None]}


def _corpus(name):
    """Read through as cleaning does."""

    def read(folder):
        corpus, _ = open_corpus(folder / name, ColumnNames(users_needed=False), folder / "made")
        for batch in corpus.batches():
            survey(batch, TagNormaliser())

    return read


def parquet_of(table, **options):
    file = io.BytesIO()
    arrow().parquet.write_table(table, file, **options)
    return file.getvalue()


def _parquets():
    pa = arrow()
    plain = pa.table({"image": ["1.jpg", "2.jpg"], "tags": ["cat, sofa", "dog"], "user": [1, 2]})
    return [
        parquet_of(pa.table(ROWS)),
        parquet_of(pa.table(ROWS), compression="zstd", row_group_size=1, data_page_version="2.0"),
        parquet_of(plain, compression="gzip", use_dictionary=False),
    ]


def _parquet_bombs():
    pa = arrow()
    same = pa.table({"image": ["1.jpg"] * 200_000, "tags": [["cat"] * 8] * 200_000, "user": ["ann"] * 200_000})
    long = pa.table({"image": ["1.jpg"], "tags": [["a" * 40_000_000]], "user": ["ann"]})
    return [parquet_of(same), parquet_of(long, compression="zstd"), b"PAR1" + b"\xff\xff\xff\x7fPAR1", b"PAR1" * 3]


def _gzip_bombs():
    zeros = gzip.compress(b"\0" * 40_000_000, 6, mtime=0)
    rows = gzip.compress(b"image,tags,user\n" + b"a.jpg,cat,ann\n" * 60_000, 6, mtime=0)
    quoted = gzip.compress(b'image,tags,user\na.jpg,"' + b"x\n" * 1_000_000, 6, mtime=0)
    return [zeros, rows, quoted, gzip.compress(rows, mtime=0)]


def _texts(*texts):
    return lambda: [text.encode() for text in texts]


def _packed(text):
    return lambda: [gzip.compress(text.encode(), mtime=0)]


def _captioned(name, text, form):
    entry = "excite.tags.captions.read_captions"
    return Reader(
        f"captions {name}",
        entry,
        f"captions.{name}",
        lambda folder: read_captions(folder / f"captions.{name}", Counter()),
        _texts(text),
        form,
    )


CORPUS = "excite.tags.text_files.open_corpus, Corpus.batches, survey"


TOKENS = "1000092795.jpg#0\tTwo young guys .\n1000092795.jpg#1\tTwo men outside .\n"


READERS = (
    Reader("corpus CSV", CORPUS, "tags.csv", _corpus("tags.csv"), _texts(CSV), "csv"),
    Reader(
        "corpus TSV",
        CORPUS,
        "tags.tsv",
        _corpus("tags.tsv"),
        _texts("image\ttags\n1.jpg\tcat, sofa\n2.jpg\tdog\n"),
        "csv",
    ),
    Reader("corpus CSV.gz", CORPUS, "tags.csv.gz", _corpus("tags.csv.gz"), _packed(CSV), "gzip", hostile=_gzip_bombs),
    Reader("corpus JSON lines", CORPUS, "tags.jsonl", _corpus("tags.jsonl"), _texts(JSONL), "json lines"),
    Reader(
        "corpus Parquet",
        CORPUS,
        "tags.parquet",
        _corpus("tags.parquet"),
        _parquets,
        tokens=(b"PAR1", b"element", b"image"),
        hostile=_parquet_bombs,
    ),
    _captioned("json", json.dumps(COCO), "json"),
    _captioned(
        "jsonl",
        '{"image": "a.jpg", "captions": ["A dog.", "Grass."]}\n{"file_name": "b.jpg", "caption": "A cat."}\n',
        "json lines",
    ),
    _captioned("csv", 'image,caption\na.jpg,"A dog, a cat."\nb.jpg,Grass.\n', "csv"),
    _captioned("token", TOKENS, "words"),
    Reader(
        "stop words",
        "excite.tags.captions.read_stop_words",
        "stop.txt",
        lambda folder: read_stop_words(folder / "stop.txt"),
        _texts("the\nA\n\nof\n"),
        "words",
    ),
    Reader(
        "dictionary",
        "excite.tags.dictionary.Dictionary.read",
        "kept.tags.csv",
        lambda folder: Dictionary.read(folder / "kept.tags.csv"),
        _texts("tag,count\nnature,30\ndog,10\n"),
        "csv",
    ),
    Reader(
        "measures",
        "excite.tags.statistics.learnt_tags",
        "measures.csv",
        lambda folder: learnt_tags(folder / "measures.csv"),
        _texts("tag,count,precision,share\ndog,9,0.6,0.02\nemu,8,,0\n"),
        "csv",
    ),
)

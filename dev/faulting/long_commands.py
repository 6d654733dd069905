"""The long commands, each on tiny inputs of its own: what they are called with, and what they write."""

import csv
import hashlib
import io
import json
import os
import zipfile
from dataclasses import dataclass

from annotated import colour_classifier, make_imagenet, make_voc, picture, scenes
from described import around, make_rec, pictures, write_proposals
from learning import TINY

from excite.datasets import published
from excite.io.fetch import Remote
from excite.models import MODELS, Card
from excite.vocabulary import Labels

__all__ = ["COMMANDS", "Long", "know_models", "make_inputs", "publish"]

COUNT = 6  # images


@dataclass(frozen=True)
class Long:
    """A long command.

    Attributes:
        words: what is typed behind ``excite``; it writes into ``out``.
        vanishes: an input that can be taken away while it runs,
        folder: and the folder of all of them.
        store: the file of its answers, which may be cut off in the middle.
        vague: what differs from run to run, such as times: regular expressions, by the end of the file's name.
        out: what it writes into; a file where that is what it is told.
    """

    words: str
    vanishes: str | None = None
    folder: str | None = None
    store: str | None = None
    vague: tuple[tuple[str, str], ...] = ()
    out: str = "out"

    @property
    def arguments(self):
        """As the command line has them."""
        return self.words.split()


WRITTEN = r"(?<=: )\d{19}(?=[,}])"  # when a file was written, in nanoseconds
NUMBER = r"-?\d+(\.\d+)?(e[+-]?\d+)?"
IN_INDEX = r"(?s)(?<=\n\x01\x00{7}.{8}).{8}"  # when a shard was written, as 8 bytes
STATES = (("written.jsonl", "(?s).+"),)  # which states of files are excite's own: more of them after a stop

COMMANDS = {
    "attend": Long(
        "attend photos red green --model colours --layer 1 --arrays --out out",
        "photos/000004.png",
        "photos",
        "out/answers.jsonl",
        (("answers.jsonl", WRITTEN),),
    ),
    "boxes coco": Long(
        "boxes photos --concept red --model colours --out out",
        "photos/000004.png",
        "photos",
        "out/records.jsonl",
        STATES,
    ),
    "boxes voc": Long(
        "boxes photos --concept red --model colours --format voc --out out",
        "photos/000004.png",
        "photos",
        "out/records.jsonl",
        STATES,
    ),
    "find": Long(
        "find photos red --model colours --index out/index.sqlite --csv out/found.csv",
        "photos/000004.png",
        "photos",
        "out/index.sqlite",
        (("index.sqlite", "(?s).+"),),  # its pages may lie in another order
    ),
    "ground": Long(
        "ground rec/images/001.png red green --model colours --side 48 --proposals boxes.json --out out",
        "boxes.json",
        "rec",
    ),
    "bench pointing": Long(
        "bench pointing --data voc --model colours --methods c-mwp,mwp --no-page --out out",
        "voc/JPEGImages/000004.jpg",
        "voc",
        "out/records.jsonl",
    ),
    "bench localization": Long(
        "bench localization --data imagenet --model colours --methods mwp --no-page --out out",
        "imagenet/val/000004.JPEG",
        "imagenet",
        "out/records.jsonl",
    ),
    "bench grounding": Long(
        "bench grounding --data rec --model colours --proposals boxes.json --side 48 --methods mwp --no-page --out out",
        "rec/images/004.png",
        "rec",
        "out/records.jsonl",
        ((".jsonl", r'"seconds": \{[^}]*\}'),),
    ),
    "bench speed": Long(
        "bench speed --model tiny --quick --batches 1,2 --seconds 0 --no-memory --out out",
        store="out/speed.jsonl",
        vague=(("", rf"{NUMBER}|null"), (".png", "(?s).+"), (".md", " +|-+")),
    ),
    "layers": Long(
        "layers colours --data voc --layer 1 --layer 2 --method mwp --out out",
        "voc/JPEGImages/000004.jpg",
        "voc",
        "out/records.jsonl",
    ),
    "check": Long(
        "check colours photos --only values,classes,removal --no-page --out out",
        "photos/000004.png",
        "photos",
        "out/records.jsonl",
    ),
    "finetune": Long(
        "finetune --data voc --split val --model tiny --views 2 --batch 4 --held-out 0.3 --out out",
        "voc/JPEGImages/000002.jpg",
        "voc",
        "out/features/index.jsonl",
    ),
    "finetune augment": Long(
        "finetune --data voc --split val --model tiny --augment --batch 4 --out out",
        "voc/JPEGImages/000002.jpg",
        "voc",
        "out/training.safetensors",
        ((".safetensors", r'"__metadata__":\{[^}]*\}'),),  # in any order
    ),
    "train tags": Long(
        "train tags kept.parquet --pictures photos --model tiny --min-count 1 --epochs 2 --batch 2 --save-every 0 "
        "--out out",
        "photos/000004.png",
        "photos",
        "out/training.safetensors",
        (("curves.csv", r"[\d.]+(?=\n)"),),
    ),
    "tags clean": Long(
        "tags clean corpus.csv --out out/kept.parquet --min-count 1 --min-tags 1 --keep-alphabetical",
        "corpus.csv",
    ),
    "tags clean choices": Long(
        "tags clean corpus.csv --out out/kept.parquet --min-count 1 --min-tags 1 --choices", "corpus.csv"
    ),
    "tags captions": Long("tags captions captions.csv --out out/corpus.parquet", "captions.csv"),
    "tags shards": Long(
        "tags shards kept.parquet --pictures photos --rows 2 --out out",
        "photos/000004.png",
        "photos",
        "out/shard-000001.tar",
        ((".index", IN_INDEX),),
    ),
    "tags stats": Long(
        "tags stats kept.parquet --min-count 1 --pictures photos --out out", "photos/000004.png", "photos"
    ),
    "fetch": Long("fetch coco2017 --to out", store="out/val2017.zip.part"),
    "export": Long("export tiny --pt2 out/map.pt2 --no-dynamic", out="out"),
}


COLOURS = Card(
    name="colours",
    build=lambda _classes: colour_classifier().module,
    preprocess=colour_classifier().preprocess,
    labels=lambda: Labels(["red", "green"]),
    layers=("2", "1"),
    description="a classifier of colours",
    source="nowhere",
    pretrained=lambda: colour_classifier().module,
)


def know_models():
    """Let excite know tiny classifiers by their names."""
    MODELS["colours"] = COLOURS
    MODELS["tiny"] = TINY


def make_inputs(folder):
    """All that any of the commands reads."""
    for name, squares in scenes(COUNT):
        picture(folder / "photos" / f"{name}.png", squares)
    make_voc(folder / "voc", scenes(COUNT))
    make_imagenet(folder / "imagenet", scenes(COUNT), ["red", "green"])
    described = pictures(COUNT)
    make_rec(folder / "rec", described)
    write_proposals(folder / "boxes.json", {name: around(squares) for name, (squares, _) in described.items()})
    tags = [
        [*sorted({colour for colour, _ in squares}), "thing", f"n{k}"] for k, (_, squares) in enumerate(scenes(COUNT))
    ]
    rows = [[f"{k:06}.png", ";".join(words), f"u{k % 2}"] for k, words in enumerate(tags)]
    _write_csv(folder / "corpus.csv", [["image", "tags", "user"], *rows])
    captions = [[name, f"a {' and '.join(words)} lies there"] for (name, *_), words in zip(rows, tags, strict=True)]
    _write_csv(folder / "captions.csv", [["image", "caption"], *captions])
    _write_parquet(folder / "kept.parquet", rows, tags)


def _write_csv(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def _write_parquet(path, rows, tags):
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {"image": [name for name, *_ in rows], "tags": tags, "user": [user for *_, user in rows]}
    pq.write_table(pa.table(columns), path)


def archive():
    """A data set as its publisher would have it: one zip file."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as zipped:
        zipped.writestr("annotations/instances_val2017.json", json.dumps({"images": []}))
        for number in range(4):
            zipped.writestr(zipfile.ZipInfo(f"val2017/{number}.jpg"), hashlib.sha256(bytes([number])).digest() * 1000)
    return content.getvalue()


def publish(url, content):
    """Let ``excite fetch`` find the data set at a server of ours."""
    os.environ["no_proxy"] = "127.0.0.1"
    remote = Remote("val2017.zip", url, hashlib.sha256(content).hexdigest(), size=len(content))
    one = published.PublishedDataset("coco2017", "", ".", {"val": (remote,)}, ("val",))
    published.PUBLISHED = {"coco2017": one}

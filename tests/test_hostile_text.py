"""Names that would act on a terminal, in Markdown or in HTML: through every command they stay text, on one line."""

import glob
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import markdown
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from annotated import SIDE, picture, write_coco
from described import around, write_proposals
from hostile_names import HOSTILE, MODEL, UNUSUAL, hostile_card
from learning import TINY

from excite.cli.app import app, main
from excite.models import MODELS

NO_TEXT = {"surrogate"}  # Parquet and CSV hold UTF-8
IMAGES = 7


def file_names():
    """All texts, in the names of a few images."""
    texts = [text[:60] for text in HOSTILE.values()]
    joined = ["".join(sign for sign in "".join(texts[k::IMAGES]) if sign not in "/\ud800") for k in range(IMAGES)]
    return [f"{name}.png" for name in joined]


PHOTOS, BROKEN, COCO, REC, SORTED, OUT = (
    f"{name}{UNUSUAL}" for name in ("photos", "broken", "coco", "rec", "sorted", "out")
)
BOXES, CORPUS, KEPT, CAPTIONS, PHRASES, LABELS = (
    f"{name}{UNUSUAL}.{kind}"
    for name, kind in zip("abcdef", ("json", "csv", "parquet", "csv", "txt", "json"), strict=True)
)
SQUARE = (4, 4, 16, 16)
CONCEPTS = [text for name, text in HOSTILE.items() if not glob.has_magic(text) and name != "dash"]  # what is no pattern
ONE = f"{PHOTOS}/{file_names()[0]}"
UNKNOWN = f"nothing {UNUSUAL}"


def colour_of(number):
    return "red" if number % 2 else "green"


def make_world(folder):
    """All inputs of all commands; every name in them is hostile."""
    texts, files = list(HOSTILE.values()), file_names()
    images = [{"id": k, "file_name": file, "width": SIDE, "height": SIDE} for k, file in enumerate(files)]
    annotations, phrases = [], []
    for k, file in enumerate(files):
        for place in (folder / PHOTOS, folder / COCO / "val2017", folder / REC / "images"):
            picture(place / file, [(colour_of(k), SQUARE)])
    for k, text in enumerate(texts):
        annotations.append({"image_id": k % IMAGES, "category_id": k, "bbox": [4, 4, 12, 12], "iscrowd": 0})
        phrases.append({"file": files[k % IMAGES], "phrase": text, "box": list(SQUARE)})
    for k, name in enumerate(("pipe", "direction", "emphasis", "dash")):
        picture(folder / SORTED / HOSTILE[name].replace("/", "") / "one.png", [(colour_of(k), SQUARE)])
    (folder / BROKEN).mkdir()
    for name in ("one", "two"):
        (folder / BROKEN / f"{name}{UNUSUAL}.png").write_bytes(b"no picture")
    categories = [{"id": k, "name": text} for k, text in enumerate(texts)]
    write_coco(folder / COCO, {"categories": categories, "images": images, "annotations": annotations})
    lines = [json.dumps(one) for one in phrases]
    (folder / REC / "refcoco_val.jsonl").write_text("\n".join(lines) + "\n")
    write_proposals(folder / BOXES, {file: around([("red", SQUARE)]) for file in files})
    readable = {name: text for name, text in HOSTILE.items() if name not in NO_TEXT}
    tags = [[text, "thing", colour_of(k)] for k, text in enumerate(readable.values())]
    names = ([file for file in files if "\udcff" not in file] * len(readable))[: len(readable)]
    pq.write_table(pa.table({"image": names, "tags": tags, "user": [UNUSUAL] * len(names)}), folder / KEPT)
    (folder / CORPUS).write_text("image,tags,user\n" + "".join(csv_row(*row) for row in zip(names, tags, strict=True)))
    (folder / CAPTIONS).write_text("image,caption\n" + "".join(f'"{k}.png","a {colour_of(k)} {k}"\n' for k in range(9)))
    said = [" ".join(HOSTILE[name].splitlines()) for name in ("colour", "script", "direction", "separators", "long")]
    (folder / PHRASES).write_text("\n".join(said))
    (folder / LABELS).write_text(json.dumps(texts))


def csv_row(name, tags):
    cells = (name, ";".join(tags).replace("\r", ""), "user")
    return ",".join('"' + cell.replace('"', '""') + '"' for cell in cells) + "\n"


BENCH = ["--model", MODEL, "--methods", "mwp,c-mwp,center"]
TRAIN = ["train", "tags", KEPT, "--pictures", PHOTOS, "--model", "tiny"]
CASES = {
    "attend": ["attend", PHOTOS, "--model", MODEL, "--out", OUT],
    "attend broken": ["attend", BROKEN, "--model", MODEL, "--out", OUT],
    "attend concepts": ["attend", ONE, *CONCEPTS, "--model", MODEL, "--out", OUT],
    "attend layers": ["attend", ONE, "--layer", "one", "--model", MODEL, "--labels", LABELS, "--no-overlays"],
    "boxes": ["boxes", SORTED, "--concepts-from-folders", "--model", MODEL, "--out", OUT, "--format", "csv"],
    "boxes concepts": ["boxes", ONE, "--concept", HOSTILE["script"], "--model", MODEL, "--out", OUT],
    "check": ["check", MODEL, PHOTOS, "--out", OUT, "--limit", "2", "--only", "mass,values,classes"],
    "layers": ["layers", MODEL, "--data", COCO, "--out", OUT],
    "export": ["export", MODEL, "--pt2", f"{OUT}.pt2", "--no-dynamic"],
    "finetune": ["finetune", "--data", COCO, "--split", "val", "--model", "tiny", "--batch", "8", "--out", OUT],
    "ground": ["ground", ONE, HOSTILE["link"], "--phrases", PHRASES, "--model", MODEL, "--side", "48", "--out", OUT],
    "bench pointing": ["bench", "pointing", "--data", COCO, *BENCH, "--out", OUT],
    "bench localization": ["bench", "localization", "--data", COCO, *BENCH, "--held-out", "0.4", "--out", OUT],
    "bench grounding": [
        "bench",
        "grounding",
        "--data",
        REC,
        *BENCH,
        "--proposals",
        BOXES,
        "--side",
        "48",
        "--out",
        OUT,
    ],
    "bench speed": ["bench", "speed", "--model", MODEL, "--quick", "--seconds", "0", "--no-memory", "--out", OUT],
    "ls models": ["ls", "models"],
    "ls layers": ["ls", "layers", MODEL],
    "ls labels": ["ls", "labels", "--model", MODEL],
    "ls methods": ["ls", "methods"],
    "tags clean": ["tags", "clean", CORPUS, "--out", f"{OUT}/kept.parquet", "--min-count", "1", "--min-tags", "1"],
    "tags captions": ["tags", "captions", CAPTIONS, "--out", f"{OUT}/corpus.parquet"],
    "tags stats": ["tags", "stats", KEPT, "--min-count", "1", "--pictures", PHOTOS, "--out", OUT],
    "tags shards": ["tags", "shards", KEPT, "--pictures", PHOTOS, "--rows", "9", "--out", OUT],
    "train tags": [*TRAIN, "--min-count", "1", "--epochs", "1", "--held-out", "0.5", "--out", OUT],
}
REFUSED = {
    "": [UNKNOWN],
    "option": ["attend", ONE, f"--{UNUSUAL}"],
    "attend": ["attend", UNKNOWN],
    "attend concept": ["attend", ONE, UNKNOWN, "--model", MODEL],
    "attend index": ["attend", ONE, "--model", MODEL, "--", "-1"],
    "attend layer": ["attend", ONE, "--layer", UNKNOWN, "--model", MODEL],
    "attend method": ["attend", ONE, "--method", UNKNOWN],
    "attend model": ["attend", ONE, "--model", UNKNOWN],
    "attend labels": ["attend", ONE, "--labels", UNKNOWN, "--model", MODEL],
    "attend number": ["attend", ONE, "--alpha", UNKNOWN],
    "attend long": ["attend", ONE, HOSTILE["long"] * 5],
    "boxes concept": ["boxes", ONE, "--concept", HOSTILE["title"], "--model", MODEL],
    "boxes format": ["boxes", ONE, "--format", UNKNOWN],
    "check": ["check", MODEL, UNKNOWN],
    "check only": ["check", MODEL, PHOTOS, "--only", UNKNOWN],
    "layers": ["layers", MODEL, "--data", UNKNOWN],
    "export": ["export", MODEL, "--onnx", f"{UNKNOWN}.xyz"],
    "fetch": ["fetch", UNKNOWN, "--to", OUT],
    "fetch split": ["fetch", "voc2007", "--to", OUT, "--split", UNKNOWN],
    "finetune": ["finetune", "--data", UNKNOWN, "--out", OUT],
    "ground": ["ground", UNKNOWN, UNKNOWN],
    "ground proposals": ["ground", ONE, "red", "--proposals", UNKNOWN, "--model", MODEL],
    "bench pointing": ["bench", "pointing", "--data", COCO, "--split", UNKNOWN, "--model", MODEL],
    "bench localization": ["bench", "localization", "--data", UNKNOWN, "--model", MODEL],
    "bench grounding": ["bench", "grounding", "--data", UNKNOWN, "--model", MODEL],
    "bench speed": ["bench", "speed", "--model", UNKNOWN],
    "ls layers": ["ls", "layers", UNKNOWN],
    "ls labels": ["ls", "labels", UNKNOWN, "--model", MODEL],
    "serve model": ["serve", "--model", UNKNOWN],
    "serve reports": ["serve", "--reports", UNKNOWN],
    "serve host": ["serve", "--model", MODEL, "--host", UNKNOWN],
    "tags clean": ["tags", "clean", UNKNOWN, "--out", OUT],
    "tags captions": ["tags", "captions", UNKNOWN, "--out", OUT],
    "tags stats": ["tags", "stats", KEPT, "--columns", UNKNOWN],
    "tags shards": ["tags", "shards", UNKNOWN, "--pictures", PHOTOS, "--out", OUT],
    "train tags": ["train", "tags", UNKNOWN, "--out", OUT],
}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    make_world(folder)
    return folder


@pytest.fixture
def excite(world, tmp_path, monkeypatch, capsys):
    """Run ``excite`` beside the inputs; gives the exit code and both texts. What it writes is in ``tmp_path``."""
    for path in world.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(MODELS, MODEL, hostile_card())
    monkeypatch.setitem(MODELS, "tiny", replace(TINY, description=UNUSUAL))

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        return ended.value.code, *capsys.readouterr()

    return run


def check_terminal(text):
    """Lines without anything that acts, none of them begun by a name."""
    text.encode()
    for line in text.split("\n"):
        assert line.isprintable(), repr(line)
        assert not line.startswith("!BREAK")
        assert len(line) < 5000


class Page(HTMLParser):
    """The tags of a page that have any business there."""

    TAGS = frozenset(
        "html head meta title style body header h1 h2 h3 p nav ul li a main section div table caption thead tbody "
        "tfoot tr th td span small strong u b figure figcaption img dl dt dd pre code svg defs g path use text "
        "tspan rect clippath em br".split()
    )

    def __init__(self, text):
        super().__init__()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        assert tag in self.TAGS, tag
        for name, value in attributes:
            assert not name.startswith("on"), name
            if name in {"href", "src", "xlink:href"}:
                assert value.startswith(("#", "data:image/")), value[:80]


def check_html(text):
    for line in text.split("\n"):
        assert line.isprintable(), repr(line[:300])
        assert not line.startswith("!BREAK")
    assert "<script" not in text.lower()
    Page(text)


def check_markdown(text):
    """No markup of a name, as the file is and as it is shown."""
    for line in text.split("\n"):
        assert line.isprintable(), repr(line)
        assert not line.startswith("!BREAK")
    assert "<script" not in text
    assert "<img" not in text
    for block in re.findall(r"(?:^\|.*\|$\n?)+", text, re.MULTILINE):
        assert len({line.count("|") for line in block.splitlines()}) == 1, block
    shown = markdown.markdown(text, extensions=["tables"])
    assert not re.search(r"<(script|img|a|del)\b", shown)
    assert "<strong>init" not in shown
    assert "<em>bold" not in shown


CHECKS = {".md": check_markdown, ".html": check_html}


def written(folder):
    return [path for path in Path(folder).rglob("*") if path.suffix in CHECKS and not path.is_symlink()]


@pytest.mark.filterwarnings("always::excite.errors.LostSignalWarning")  # which names concepts and layers
@pytest.mark.parametrize("arguments", CASES.values(), ids=CASES)
def test_what_is_printed_and_written_is_text(excite, tmp_path, arguments):
    code, out, err = excite(*arguments)
    assert code == (1 if BROKEN in arguments else 0), err
    check_terminal(out)
    check_terminal(err)
    for path in written(tmp_path):
        CHECKS[path.suffix](path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("arguments", REFUSED.values(), ids=REFUSED)
def test_errors_are_one_line(excite, arguments):
    code, out, err = excite(*arguments)
    assert code not in {0, None}
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("excite: ")
    assert "fault of excite" not in err
    assert len(err) < 1500
    check_terminal(err)


JSON = ["attend", "boxes", "ground", "check", "layers", "ls labels", "ls layers", "tags stats"]


@pytest.mark.parametrize("name", JSON)
def test_json_is_exact(excite, name):
    code, out, err = excite(*CASES[name], "--json")
    assert code == 0, err
    assert out.isascii()
    check_terminal(out.replace("\n", "")[:10] + err)
    said = json.dumps([json.loads(line) for line in out.splitlines()])
    exact = {"boxes": "direction", "ground": "link"}.get(name, "title")
    wanted = UNUSUAL if name in {"check", "layers", "ls layers"} else HOSTILE[exact]
    assert json.dumps(wanted)[1:-1] in said


def test_every_command_is_here():
    groups = {group.name: group.typer_instance for group in app.registered_groups}
    names = {command.name for command in app.registered_commands}
    for group, inner in groups.items():
        names |= {
            f"{group} {command.name or command.callback.__name__}"
            for command in inner.registered_commands
            if not command.hidden
        }
    tried = {
        " ".join(arguments[: 2 if arguments[0] in groups else 1]) for arguments in (*CASES.values(), *REFUSED.values())
    }
    assert names <= tried


def test_a_trace_is_text_too(monkeypatch, capsys):
    """With --debug Python shows the whole trace, which quotes what it likes."""
    monkeypatch.setattr("sys.excepthook", sys.excepthook)  # put back afterwards

    def fail(*_arguments, **_more):
        raise RuntimeError("a\x1b[31m\u202e")

    monkeypatch.setattr("excite.cli.app.app", fail)
    with pytest.raises(RuntimeError) as raised:
        main(["ls", "--debug"])
    sys.excepthook(raised.type, raised.value, raised.tb)
    trace = capsys.readouterr().err
    check_terminal(trace)
    assert trace.startswith("Traceback")
    assert trace.endswith("RuntimeError: a\\x1b[31m\\u202e\n")

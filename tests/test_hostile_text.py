"""Names that would act on a terminal, in Markdown or in HTML: through every command they stay text, on one line."""

import csv
import glob
import json
import re
import sys
import tomllib
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
from snapshot_capture import subcommands

from excite.cli import main
from excite.models import MODELS
from excite.readouts import gallery

NO_TEXT = {"surrogate"}  # Parquet and CSV hold UTF-8
IMAGES = 7


def file_names():
    """All texts, in the names of a few images."""
    texts = [text[:60] for text in HOSTILE.values()]
    joined = ["".join(sign for sign in "".join(texts[k::IMAGES]) if sign not in "/\ud800") for k in range(IMAGES)]
    return [f"{name}.png" for name in joined]


PHOTOS, BROKEN, COCO, REC, SORTED, OUT = (f"{name}{UNUSUAL}" for name in "photos broken coco rec sorted out".split())
BOXES, CORPUS, KEPT, CAPTIONS, PHRASES, LABELS = (
    f"{number}{UNUSUAL}.{kind}" for number, kind in enumerate("json csv parquet csv txt json".split())
)
ONE, UNKNOWN, LONGEST = f"{PHOTOS}/{file_names()[0]}", f"nothing {UNUSUAL}", HOSTILE["long"] * 5
SQUARE = (4, 4, 16, 16)
CONCEPTS = [text for name, text in HOSTILE.items() if not glob.has_magic(text) and name != "dash"]  # what is no pattern
TABLE = tomllib.loads(Path(__file__).with_name("hostile_text.toml").read_text())
ANSWERED, REFUSED = (
    {name: [word.format_map(globals()) for word in typed.split(" ")] for name, typed in TABLE[kind].items()}
    for kind in ("answered", "refused")
)
ANSWERED["attend concepts"] = ["attend", ONE, *CONCEPTS, "--model", MODEL, "--out", OUT]


def colour_of(number):
    return "red" if number % 2 else "green"


def make_world(folder):
    """All inputs of all commands; every name in them is hostile."""
    texts, files = list(HOSTILE.values()), file_names()
    images = [{"id": k, "file_name": file, "width": SIDE, "height": SIDE} for k, file in enumerate(files)]
    for k, file in enumerate(files):
        for place in (folder / PHOTOS, folder / COCO / "val2017", folder / REC / "images"):
            picture(place / file, [(colour_of(k), SQUARE)])
    box = {"bbox": [4, 4, 12, 12], "iscrowd": 0}
    annotations = [{"image_id": k % IMAGES, "category_id": k, **box} for k in range(len(texts))]
    phrases = [{"file": files[k % IMAGES], "phrase": text, "box": list(SQUARE)} for k, text in enumerate(texts)]
    for k, name in enumerate(("pipe", "direction", "emphasis", "dash")):
        picture(folder / SORTED / HOSTILE[name].replace("/", "") / "one.png", [(colour_of(k), SQUARE)])
    (folder / BROKEN).mkdir()
    for name in ("one", "two"):
        (folder / BROKEN / f"{name}{UNUSUAL}.png").write_bytes(b"no picture")
    categories = [{"id": k, "name": text} for k, text in enumerate(texts)]
    write_coco(folder / COCO, {"categories": categories, "images": images, "annotations": annotations})
    (folder / REC / "refcoco_val.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in phrases))
    write_proposals(folder / BOXES, {file: around([("red", SQUARE)]) for file in files})
    readable = {name: text for name, text in HOSTILE.items() if name not in NO_TEXT}
    tags = [[text, "thing", colour_of(k)] for k, text in enumerate(readable.values())]
    names = ([file for file in files if "\udcff" not in file] * len(readable))[: len(readable)]
    pq.write_table(pa.table({"image": names, "tags": tags, "user": [UNUSUAL] * len(names)}), folder / KEPT)
    with (folder / CORPUS).open("w") as file:
        rows = [(name, ";".join(each).replace("\r", ""), "user") for name, each in zip(names, tags, strict=True)]
        csv.writer(file).writerows([("image", "tags", "user"), *rows])
    (folder / CAPTIONS).write_text("image,caption\n" + "".join(f'"{k}.png","a {colour_of(k)} {k}"\n' for k in range(9)))
    said = [" ".join(HOSTILE[name].splitlines()) for name in ("colour", "script", "direction", "separators", "long")]
    (folder / PHRASES).write_text("\n".join(said))
    (folder / LABELS).write_text(json.dumps(texts))


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


def check_lines(text, longest=None):
    """Lines without anything that acts, none of them begun by a name."""
    text.encode()
    for line in text.split("\n"):
        assert line.isprintable(), repr(line[:300])
        assert not line.startswith("!BREAK")
        assert longest is None or len(line) < longest


class Page(HTMLParser):
    """The tags of a page that have any business there."""

    TAGS = frozenset(
        "html head meta title style body header h1 h2 h3 p nav ul li a main section div table caption thead tbody "
        "tfoot tr th td span small strong u b figure figcaption img dl dt dd pre code svg defs g path use text "
        "tspan rect clippath em br form label select optgroup option input output".split()
    )

    def handle_starttag(self, tag, attributes):
        assert tag in self.TAGS, tag
        for name, value in attributes:
            assert not name.startswith("on"), name
            if name in {"href", "src", "xlink:href"}:
                assert value.startswith(("#", "data:image/")) or ":" not in value, value[:80]


GALLERY = Path(gallery.__file__).parent / "templates" / "gallery.html"
OWN_SCRIPT = re.search(r"<script>.*</script>", GALLERY.read_text(), re.DOTALL)[0]


def check_html(text):
    check_lines(text)
    text = text.replace(OWN_SCRIPT, "", 1)
    assert "<script" not in text.lower()
    Page().feed(text)


def check_markdown(text):
    """No markup of a name, as the file is and as it is shown."""
    check_lines(text)
    assert not any(tag in text for tag in ("<script", "<img"))
    for block in re.findall(r"(?:^\|.*\|$\n?)+", text, re.MULTILINE):
        assert len({line.count("|") for line in block.splitlines()}) == 1, block
    shown = markdown.markdown(text, extensions=["tables"])
    assert not re.search(r"<(script|img|a|del)\b|<strong>init|<em>bold", shown)


CHECKS = {".md": check_markdown, ".html": check_html}


@pytest.mark.filterwarnings("always::excite.errors.LostSignalWarning")  # which names concepts and layers
@pytest.mark.parametrize("arguments", ANSWERED.values(), ids=ANSWERED)
def test_what_is_printed_and_written_is_text(excite, tmp_path, arguments):
    code, out, err = excite(*arguments)
    unknown = arguments[0] == "ground"  # words that no classifier knows are answered too, with code 1
    assert code == (1 if BROKEN in arguments or unknown else 0), err
    check_lines(out + err, 5000)
    for path in tmp_path.rglob("*"):
        if path.suffix in CHECKS and not path.is_symlink():
            CHECKS[path.suffix](path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("arguments", REFUSED.values(), ids=REFUSED)
def test_errors_are_one_line(excite, arguments):
    code, out, err = excite(*arguments)
    assert code not in {0, None}
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("excite: ")
    assert "fault of excite" not in err
    check_lines(err, 1500)


JSON = ["attend", "boxes", "ground", "check", "layers", "ls labels", "ls layers", "tags stats"]


@pytest.mark.parametrize("name", JSON)
def test_json_is_exact(excite, name):
    code, out, err = excite(*ANSWERED[name], "--json")
    assert code == (name == "ground"), err
    assert out.isascii()
    check_lines(err, 5000)
    said = json.dumps([json.loads(line) for line in out.splitlines()])
    exact = {"boxes": "direction", "ground": "link"}.get(name, "title")
    wanted = UNUSUAL if name in {"check", "layers", "ls layers"} else HOSTILE[exact]
    assert json.dumps(wanted)[1:-1] in said


def test_every_command_is_here():
    tried = {" ".join(arguments[:count]) for arguments in (*ANSWERED.values(), *REFUSED.values()) for count in (1, 2)}
    assert {*subcommands()} - {""} <= tried


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
    check_lines(trace)
    assert trace.startswith("Traceback")
    assert trace.endswith("RuntimeError: a\\x1b[31m\\u202e\n")

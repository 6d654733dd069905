"""Bad input to any command: one clear line on standard error, an exit code that is not zero, and nothing lost.

What the most usual mistakes are answered, word for word, is in tests/snapshots.
"""

import re
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from annotated import make_voc, picture, scenes
from described import make_rec, pictures, write_proposals
from PIL import Image
from skimage import data
from zoo import torchvision_models

from excite.cli import main
from excite.errors import LayerError


def photograph(name="cat.png"):
    Image.fromarray(data.chelsea()).save(name)
    return Path(name)


def truncated(name):
    content = photograph("whole.jpg").read_bytes()
    Path("whole.jpg").unlink()
    Path(name).write_bytes(content[: len(content) // 2])


BAD = {
    "empty.jpg": (lambda name: Path(name).write_bytes(b""), "is empty"),
    "truncated.jpg": (truncated, "damaged or cut off"),
    "huge.png": (lambda name: Image.new("1", (20_000, 20_000)).save(name), "more pixels than the limit"),
    "text.jpg": (lambda name: Path(name).write_text("Dear diary, today I saw a cat."), "not an image"),
    "header.png": (lambda name: Path(name).write_bytes(b"\x89PNG\r\n\x1a\n"), "not an image|damaged"),
    "folder.jpg": (lambda name: Path(name).mkdir(), "no images found"),
}


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
class TestPictures:
    @pytest.mark.parametrize("name", BAD)
    def test_alone(self, excite, here, name):
        make, reasons = BAD[name]
        make(name)
        ended = excite("attend", name, "cat", "--json")
        assert ended.code == 1
        assert name in ended.complaint
        assert any(reason in ended.complaint for reason in reasons.split("|"))
        assert not Path("excite-out").exists()

    def test_among_good_ones(self, excite, here):
        Path("photos").mkdir()
        photograph("photos/a.png")
        bad = [name for name in BAD if name != "folder.jpg"]
        for name in bad:
            BAD[name][0](f"photos/{name}")
        photograph("photos/z.png")
        ended = excite("attend", "photos", "nowhere.png", "cat", "--json", "--no-overlays")
        assert ended.code == 1
        assert [answer["image"] for answer in ended.answers] == ["photos/a.png", "photos/z.png"]
        *each, last = ended.err.splitlines()
        assert all(any(name in line for line in each) for name in (*bad, "nowhere.png"))
        assert re.fullmatch(r"excite: \d of \d images could not be read", last)

    def test_none(self, excite, here):
        Path("nothing").mkdir()
        for name in ("nothing", "nowhere.jpg"):
            assert excite("attend", name).complaint.startswith(f"no images found for '{name}'")


SHARED = {
    "--split tset": "1 no split 'tset'",
    "--methods mwp,mpw": "1 no method 'mpw'",
    "--layer 77": "1 no layer '77'",
    "--skip 99": "1 none of these 0 images",
    "--model a --model b --weights w.pth": "1 for one --model",
    "--limit 0": "2 --limit",
}
LONG = (
    "attend cat.png",
    "boxes photos",
    "layers everyday --data voc",
    "finetune --data voc --out new",
    "bench pointing --data voc",
)
WORKERS = {
    "--engine spark": "2 there is no engine 'spark': choose local or ray",
    "--address auto": "2 --address is that of a Ray cluster: give --engine ray too",
    "--workers 0": "2 workers",
    "--engine ray": "1 pip install 'excite[ray]'",  # where it is not installed
}
TABLE = tomllib.loads(Path(__file__).with_name("refused.toml").read_text())
REFUSED = TABLE["any"] | {f"{command} {more}": told for command in LONG for more, told in WORKERS.items()}
OF_COLOURS = TABLE["colours"] | {
    f"bench {name} --data voc --no-page {more}": told
    for name in ("pointing", "localization")
    for more, told in SHARED.items()
}
NETWORK = """name: "n" input: "data" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc" inner_product_param { num_output: 2 } }"""
ROW = '{"image": "1.jpg", "tags": ["sea", "sky", "boat"], "user": "ann"}\n'


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """What the commands are asked about."""
    folder = tmp_path_factory.mktemp("world")
    photograph(folder / "cat.png")
    make_voc(folder / "voc", scenes(24))
    make_rec(folder / "rec", pictures(2))
    (folder / "other").mkdir()
    for name, squares in scenes(6):
        picture(folder / "photos" / f"{name}.png", squares)
    files = {"page.html": "<html>", "two.txt": "a\nb\n", "taken.onnx": "", "net.prototxt": NETWORK, "raw.jsonl": ROW}
    for name, text in files.items():
        (folder / name).write_text(text)
    write_proposals(folder / "none.npz", {})
    network = torchvision_models().get_model("squeezenet1_1", weights=None, num_classes=3)
    torch.save(network.state_dict(), folder / "mine.pth")
    return folder


class TestRefused:
    def check(self, excite, world, words, told):
        before = sorted(world.rglob("*"))
        ended = excite(*words.split(" "))
        code, _, said = told.partition(" ")
        assert said.lower() in ended.complaint.lower()
        assert ended.code == int(code)
        if said != "too few images":  # which is known only when they were looked at
            assert sorted(world.rglob("*")) == before  # nothing is written

    @pytest.mark.parametrize("words", REFUSED)
    def test_in_one_line(self, excite, world, words, monkeypatch):
        monkeypatch.chdir(world)
        monkeypatch.setattr("excite.jobs.executor.find_spec", lambda _name: None)
        self.check(excite, world, words, REFUSED[words])

    @pytest.mark.usefixtures("model")
    @pytest.mark.parametrize("words", OF_COLOURS)
    def test_with_a_classifier_of_colours(self, excite, world, words, monkeypatch):
        monkeypatch.chdir(world)
        self.check(excite, world, words, OF_COLOURS[words])

    @pytest.mark.usefixtures("model")
    @pytest.mark.parametrize(
        ("package", "words"),
        {"higra": "ground cat.png red", "onnxscript": "export c --onnx a.onnx", "uvicorn": "serve"}.items(),
    )
    def test_a_missing_package_is_named(self, excite, world, package, words, monkeypatch):
        monkeypatch.chdir(world)
        monkeypatch.setitem(sys.modules, package, None)
        self.check(excite, world, words, "1 pip install 'excite[")


class TestQuestions:
    def test_debug_shows_the_trace(self, cat):
        for arguments in (
            ["--debug", "attend", cat, "cat", "--layer", "x"],
            ["attend", cat, "--layer", "x", "--debug"],
        ):
            with pytest.raises(LayerError):
                main(arguments)

    def test_hardly_any_signal_is_a_note(self, excite, cat):
        """At a single place contrast leaves nothing. The answer is still given."""
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("default")
            ended = excite("attend", cat, "cat", "--layer", "pool", "--json")
        assert ended.code == 0
        assert ended.err == (
            "excite: note: only 0 of the signal for 'cat' is left at layer 'pool': the map says next to nothing; "
            "choose another layer\n"
        )
        assert ended.answers[0]["maps"][0]["point"] is None
        assert ended.answers[0]["maps"][0]["box"] is None


class TestFiles:
    def test_the_picture_itself_is_never_overwritten(self, excite, cat):
        before = Path(cat).read_bytes()
        assert excite("attend", cat, "cat", "--out", ".").code == 0
        assert Path(cat).read_bytes() == before

    def test_somebody_elses_boxes_are_kept(self, excite, cat):
        mine = Path("excite-out/boxes/boxes.json")
        mine.parent.mkdir(parents=True)
        mine.write_text('{"mine": true}')
        assert "boxes.json' is there already and was not written by excite" in excite("boxes", cat).complaint
        assert mine.read_text() == '{"mine": true}'
        assert [path.name for path in mine.parent.iterdir()] == ["boxes.json"]

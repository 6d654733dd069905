"""Bad input to any command: one clear line on standard error, an exit code that is not zero, and nothing lost.

What the most usual mistakes are answered, word for word, is in tests/snapshots.
"""

import os
import re
import sys
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


SQUEEZE = "attend cat.png --model torchvision:squeezenet1_1"
BENCH = "bench {} --data voc --no-page"
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
REFUSED = {
    "atend": "2 no such command 'atend'",
    "attend": "2 missing argument 'PHOTO' (see `excite attend --help`)",
    "attend cat.png tabyb": "1 No label is called 'tabyb'. Did you mean 'tabby'",
    "attend cat.png 1545": "1 no output unit 1545: the units are 0 to 1544",
    "attend cat.png ": "1 blank",
    "attend cat.png cat --against cat": "1 'cat' cannot be contrasted with itself",
    "attend cat.png cat --against unheardof": "1 unheardof",
    "attend cat.png cat --layer blocks.99": "1 no layer 'blocks.99'",
    "attend cat.png cat --layer classifier": "1 'classifier' has no places",
    "attend cat.png cat --method mpw": "1 did you mean mwp?",
    "attend cat.png cat --method mwp --contrast": "1 either --method or --contrast",
    "attend cat.png cat --laier head": "2 no such option: --laier",
    "attend cat.png cat --layer": "2 '--layer' requires an argument",
    "attend cat.png cat cat.png": "1 name all images first",
    "attend cat.png --model torchvision:resnet81": "1 no classifier 'resnet81'",
    "attend cat.png --model gone.pth": "1 no file 'gone.pth'",
    "attend cat.png --model mine.pth": "1 does not say for which network",
    "attend cat.png --model resnet50-caffe": "1 must be given as a file: --weights FILE",
    f"{SQUEEZE} --weights page.html": "1 page.html is a web page",
    f"{SQUEEZE} --weights other": "1 'other' is a folder",
    f"{SQUEEZE} --weights mine.pth --labels gone.txt": "1 cannot read the labels",
    f"{SQUEEZE} --weights mine.pth --labels two.txt": "1 3 outputs but 2 labels",
    "attend cat.png --model torchvision:resnet18 --weights mine.pth": "1 mine.pth does not fit ResNet",
    "attend cat.png --model gone.prototxt": "1 gone.prototxt",
    "attend cat.png --size 0": "2 '--size'",
    "attend cat.png cat --out /proc/excite": "1 cannot write",
    "attend cat.png cat --out page.html/inside": "1 page.html' is a file",
    "boxes photos --concept cat --concepts-from-folders": "2 --concepts-from-folders already says what to look for",
    "boxes photos --concept caat --concept dgo": "1 2 concepts are unknown. No label is called 'caat'",
    "boxes photos --format yolo": "1 there is no format 'yolo': use one of coco, csv, voc",
    "boxes photos --at-least 1.5": "2 --at-least",
    "boxes photos --method magic": "1 magic",
    "boxes photos --alpha nan": "1 alpha must be a finite number",
    "boxes photos --out cat.png": "1 cannot read 'cat.png/written.jsonl'",
    "fetch voc2007": "2 missing option '--to'",
    "ls layers torchvision:nothing": "1 nothing",
    "ls layers gone.caffemodel": "1 gone.caffemodel",
    "ls labels zzzzz": "1 no label contains 'zzzzz'",
    "ls labels --model net.prototxt": "1 net.prototxt has no labels",
    "ls concepts": "2 no such command 'concepts'",
    "bench conservation --family vgg --list": "1 python dev/conservation",
    "bench speed --quick --batches 0": "1 1,8",
    "bench speed --quick --layers some": "1 --layers",
    "bench speed --quick --device toaster": "1 --device toaster",
    "bench speed --quick --peers": "1 python dev/speed_peers.py",
    **{f"{command} {more}": told for command in LONG for more, told in WORKERS.items()},
}
OF_COLOURS = {
    **{f"{BENCH.format(name)} {more}": told for name in ("pointing", "localization") for more, told in SHARED.items()},
    f"{BENCH.format('pointing')} --protocol torchray --tolerance 0": "1 nothing is a hit",
    f"{BENCH.format('pointing')} --difficult nowhere.txt": "1 nowhere.txt",
    f"{BENCH.format('localization')} --held-out nan": "1 a share of nan",
    f"{BENCH.format('localization')} --held-out half": "2 --held-out",
    f"{BENCH.format('localization')} --methods mwp --limit 1": "1 too few images",
    "bench grounding --data rec --truth some": "1 no truth 'some': choose union or any",
    "bench grounding --data rec --gamma nan": "2 --gamma is search, paper or a number from 0 to 1, not 'nan'",
    "bench grounding --data rec --proposals hierarchi": "1 no proposals 'hierarchi' (did you mean hierarchy?)",
    "bench grounding --data rec --results a\nb=cca.jsonl": "2 --results is NAME=FILE",
    "bench grounding --data rec --results mwp=cca.jsonl": "2 a row 'mwp' already",
    "layers colours --data nowhere": "1 no folder 'nowhere'",
    "layers colours --data other": "1 holds no data set that is known",
    "layers colours --data voc --layer 77": "1 no layer '77'",
    "layers colours --data voc --by box": "1 one main object",
    "layers colours --data voc --limit 1": "1 too few images",
    "layers colours": "2 --data",
    "check colours photos --method luck": "1 there is no method 'luck'",
    "check colours photos --layer luck": "1 luck",
    "check colours photos --limit 0": "2 --limit",
    "export colours --onnx a.onnx --pt2 a.pt2": "2 say which file to write",
    "export colours --onnx a.onnx --size wide": "2 'wide' is no size",
    "export colours --onnx a.onnx --layer nowhere": "1 no layer 'nowhere' in this network",
    "export colours --onnx a.onnx --method grad": "1 the method 'grad' cannot be exported: choose mwp or c-mwp",
    "export colours --onnx a.onnx --check missing.jpg": "1 missing.jpg",
    "export colours --onnx taken.onnx": "1 was not made by excite export: give another name",
    "export colours --onnx page.html/a.onnx": "1 cannot write 'page.html/a.onnx'",
    "ground cat.png ": "1 a phrase is blank",
    "ground cat.png red green --out one.png": "2 one image for 2 phrases",
    "ground cat.png red --layer no": "1 no layer 'no'",
    "ground cat.png red --proposals no": "1 there are no proposals 'no'",
    "ground cat.png red --proposals none.npz": "1 cat.png",
    "ground cat.png red --gamma 1000": "2 --gamma is a number from 0 to 1, 10 at most",
    "ground cat.png red --trust nan": "2 --trust is a number from 0 to 1",
    "ground cat.png red --out cat.png": "1 was not drawn by excite",
    "ground cat.png --phrases no.txt": "1 cannot read 'no.txt'",
    "ground cat.png --phrases cat.png": "1 'cat.png': it is no UTF-8 text",
    f"ground cat.png --phrases {os.devnull}": "1 holds no phrase",
    "ground no.jpg red": "1 no file 'no.jpg'",
    "ground other red": "1 is a folder",
    "ground page.html red": "1 not an image",
}
NETWORK = """name: "n" input: "data" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc" inner_product_param { num_output: 2 } }"""


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
    for name, text in {"page.html": "<html>", "two.txt": "a\nb\n", "taken.onnx": "", "net.prototxt": NETWORK}.items():
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
        ("package", "words"), {"higra": "ground cat.png red", "onnxscript": "export c --onnx a.onnx"}.items()
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

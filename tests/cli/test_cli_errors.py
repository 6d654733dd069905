"""Bad input: one clear line on standard error, an exit code that is not zero, and nothing lost."""

import re
from pathlib import Path

import pytest
from PIL import Image
from skimage import data

from excite.errors import LayerError


def photograph(name="cat.png"):
    Image.fromarray(data.chelsea()).save(name)
    return Path(name)


def truncated(name):
    content = photograph("whole.jpg").read_bytes()
    Path("whole.jpg").unlink()
    Path(name).write_bytes(content[: len(content) // 2])


def huge(name):
    """An image of 20000 x 20000 pixels in a file of a few bytes."""
    Image.new("1", (20_000, 20_000)).save(name)


BAD = {
    "empty.jpg": lambda name: Path(name).write_bytes(b""),
    "truncated.jpg": truncated,
    "huge.png": huge,
    "text.jpg": lambda name: Path(name).write_text("Dear diary, today I saw a cat."),
    "header.png": lambda name: Path(name).write_bytes(b"\x89PNG\r\n\x1a\n"),
    "folder.jpg": lambda name: Path(name).mkdir(),
}
REASON = {
    "empty.jpg": "is empty",
    "truncated.jpg": "damaged or cut off",
    "huge.png": "more pixels than the limit",
    "text.jpg": "not an image",
    "header.png": "not an image|damaged",
    "folder.jpg": "no images found",
}


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
class TestPictures:
    @pytest.mark.parametrize("name", BAD)
    def test_alone(self, excite, here, name):
        BAD[name](name)
        ended = excite("attend", name, "cat", "--json")
        assert ended.code == 1
        assert name in ended.complaint
        assert any(reason in ended.complaint for reason in REASON[name].split("|"))
        assert not Path("excite-out").exists()

    def test_among_good_ones(self, excite, here):
        Path("photos").mkdir()
        photograph("photos/a.png")
        bad = [name for name in BAD if name != "folder.jpg"]
        for name in bad:
            BAD[name](f"photos/{name}")
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

    def test_a_picture_behind_a_concept(self, excite, cat):
        assert "name all images first" in excite("attend", cat, "cat", cat).complaint


class TestQuestions:
    @pytest.mark.parametrize(
        ("arguments", "code", "words"),
        [
            (["tabyb"], 1, ["No label is called 'tabyb'", "tabby"]),
            (["zzzzzz"], 1, ["No label is called 'zzzzzz'", "excite ls labels"]),
            (["1545"], 1, ["no output unit 1545", "0 to 1544"]),
            ([""], 1, ["blank", "excite ls labels"]),
            (["cat", "--against", "cat"], 1, ["'cat' cannot be contrasted with itself"]),
            (["cat", "--against", "unheardof"], 1, ["unheardof"]),
            (["cat", "--layer", "blocks.99"], 1, ["no layer 'blocks.99'", "blocks.9", "head", "excite ls layers"]),
            (["cat", "--layer", "classifier"], 1, ["'classifier' has no places", "excite ls layers"]),
            (["cat", "--method", "mpw"], 1, ["no method 'mpw'", "did you mean mwp?", "c-mwp, mwp"]),
            (["cat", "--model", "resnet"], 1, ["no model 'resnet'", "efficientnet-lite0"]),
            (["cat", "--method", "mwp", "--contrast"], 1, ["either --method or --contrast"]),
            (["cat", "--method", "c-mwp", "--no-contrast"], 1, ["either --method or --contrast"]),
            (["cat", "--laier", "head"], 2, ["no such option: --laier", "--layer", "excite attend --help"]),
            (["cat", "--layer"], 2, ["'--layer' requires an argument", "--help"]),
        ],
    )
    def test_one_line(self, excite, cat, arguments, code, words):
        ended = excite("attend", cat, *arguments)
        assert ended.code == code
        assert all(word.lower() in ended.complaint.lower() for word in words), ended.complaint
        assert not Path("excite-out").exists()

    def test_no_picture(self, excite):
        ended = excite("attend")
        assert ended.code == 2
        assert ended.complaint == "missing argument 'PHOTO' (see `excite attend --help`)"

    def test_an_unknown_command(self, excite):
        complaint = excite("atend").complaint
        assert complaint.startswith("no such command 'atend'")
        assert complaint.endswith("(see `excite --help`)")

    def test_debug_shows_the_trace(self, cat):
        from excite.cli import main

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


class TestFolders:
    def test_a_file_in_the_way(self, excite, cat):
        Path("taken").write_text("mine")
        for out in ("taken", "taken/inside"):
            assert "'taken' is a file" in excite("attend", cat, "cat", "--out", out).complaint.replace(
                str(Path.cwd()) + "/", ""
            )
        assert Path("taken").read_text() == "mine"

    def test_a_place_that_cannot_be_written(self, excite, cat):
        ended = excite("attend", cat, "cat", "--out", "/proc/excite")
        assert ended.code == 1
        assert ended.complaint.startswith("cannot write")

    def test_the_picture_itself_is_never_overwritten(self, excite, cat):
        before = Path(cat).read_bytes()
        assert excite("attend", cat, "cat", "--out", ".").code == 0
        assert Path(cat).read_bytes() == before

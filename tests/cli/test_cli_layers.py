"""``excite layers`` from the outside."""

import json
from pathlib import Path

import pytest
from annotated import colour_classifier, make_imagenet, make_voc, scenes


@pytest.fixture
def model(monkeypatch):
    monkeypatch.setattr("excite.models.Choice.load", lambda _choice: colour_classifier())
    return "my/colours"


@pytest.fixture
def voc(here):
    return make_voc(here / "voc", scenes(24))


class TestAnswers:
    def test_a_table_a_figure_and_a_file(self, excite, model, voc):
        ended = excite("layers", model, "--data", voc, "--tolerance", 0)
        assert (ended.code, ended.err) == (0, "")
        out = Path("excite-out/layers-my-colours")
        assert (out / "layers.png").read_bytes().startswith(b"\x89PNG")
        assert json.loads((out / "layers.json").read_text())["recommended"]["layer"] == "1"
        header, *rows = ended.out.splitlines()
        assert header.split() == ["method", "layer", "map", "pointing", "%", "mass"]
        assert rows[0].split()[:3] == ["mwp", "1", "24x24"]
        assert sum(row.endswith("recommended") for row in rows) == 1
        assert any(row.startswith("recommended: 1 with") for row in rows)
        assert rows[-1] == f"written: {out}/layers.png, {out}/layers.json"

    def test_json_is_what_the_file_says(self, excite, model, voc):
        (answer,) = excite("layers", model, "--data", voc, "--json", "--out", "out").answers
        assert answer == json.loads(Path("out/layers.json").read_text())
        assert answer["data"] == {"format": "voc", "folder": str(voc), "split": "val"}
        assert answer["tolerance"] == 15
        assert [(row["method"], row["layer"]) for row in answer["rows"]] == [
            ("mwp", "1"),
            ("mwp", "2"),
            ("c-mwp", "1"),
            ("c-mwp", "2"),
        ]

    def test_by_box(self, excite, model, here):
        data = make_imagenet(here / "imagenet", scenes(24), ["red", "green"])
        options = ["--by", "box", "--method", "mwp", "--layer", 2, "--layer", 1, "--out", "out"]
        ended = excite("layers", model, "--data", data, *options)
        assert "box error %" in ended.out
        assert "of the boxes miss the object" in ended.out

    def test_again_from_what_was_kept(self, excite, model, voc):
        first = excite("layers", model, "--data", voc, "--out", "out").out
        kept = Path("out/records.jsonl").read_text()
        assert excite("layers", model, "--data", voc, "--out", "out").out == first
        assert Path("out/records.jsonl").read_text() == kept

    def test_what_was_left_out_is_told(self, excite, model, here):
        blue = [(f"blue{k}", [("blue", (0, 0, 9, 9))]) for k in range(3)]
        ended = excite("layers", model, "--data", make_voc(here / "voc", [*scenes(12), *blue]))
        told = "left out: targets the classifier has no word for: blue (3); images with nothing to look for: 3\n"
        assert told in ended.out


class TestUnreadable:
    def test_named_at_the_end_and_the_rest_done(self, excite, model, voc):
        (voc / "JPEGImages/000003.jpg").write_text("no image")
        ended = excite("layers", model, "--data", voc)
        assert ended.code == 1
        assert "recommended" in ended.out
        first, last = ended.err.splitlines()
        assert "000003.jpg" in first
        assert last == "excite: 1 of 24 images could not be read"


class TestErrors:
    @pytest.mark.parametrize(
        ("arguments", "code", "words"),
        [
            (["--data", "nowhere"], 1, ["no folder 'nowhere'"]),
            (["--data", "."], 0, []),
            (["--data", "other"], 1, ["holds no data set that is known", "voc"]),
            (["--data", "voc", "--split", "tset"], 1, ["no split 'tset'", "val"]),
            (["--data", "voc", "--layer", "77"], 1, ["no layer '77'"]),
            (["--data", "voc", "--method", "mpw"], 1, ["no method 'mpw'"]),
            (["--data", "voc", "--by", "box"], 1, ["one main object"]),
            (["--data", "voc", "--by", "luck"], 1, ["by 'luck'", "pointing"]),
            (["--data", "voc", "--limit", "0"], 2, ["--limit"]),
            (["--data", "voc", "--limit", "1"], 1, ["too few images"]),
            (["--data", "voc", "--skip", "99"], 1, ["none of these 0 images"]),
            ([], 2, ["--data"]),
        ],
    )
    def test_one_line(self, excite, model, voc, arguments, code, words):
        Path("other").mkdir()
        ended = excite("layers", model, *arguments)
        assert ended.code == code
        assert code == 0 or all(word in ended.complaint for word in words)

    def test_no_concept_is_known(self, excite, model, here):
        data = make_voc(here / "voc", [("blue", [("blue", (0, 0, 9, 9))])])
        complaint = excite("layers", model, "--data", data).complaint
        assert complaint == "colours has no word for any category of these images: blue"

    def test_an_unknown_model(self, excite, voc):
        assert "'resnet'" in excite("layers", "resnet", "--data", voc).complaint

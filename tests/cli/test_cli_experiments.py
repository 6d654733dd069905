"""``excite bench pointing | localization | grounding``, ``layers`` and ``check`` from the outside.

What they answer on usual questions, word for word, is in tests/snapshots.
"""

import json
from pathlib import Path

import pytest
from annotated import make_voc, picture, scenes, voc_object
from described import around, make_rec, pictures, write_proposals
from PIL import Image
from processes import check_killed_again_and_again
from zoo import timm_models

from excite.datasets.flickr30k import GROUPS
from excite.experiments import GROUNDING_METHODS, LOCALIZATION_METHODS, POINTING_METHODS
from excite.experiments.localization import run as localization
from excite.methods import METHODS

TABLES = {
    "pointing": ("rows.json", "rows.csv", "categories.csv", "table.md"),
    "localization": ("rows.json", "rows.csv", "curves.csv", "table.md"),
    "grounding": ("rows.json", "rows.csv", "curves.csv", "table.md"),
}


@pytest.fixture
def rec(here):
    """10 images of two squares with three phrases each, and proposals for all."""
    described = pictures(10)
    write_proposals(here / "boxes.json", {name: around(squares) for name, (squares, _) in described.items()})
    return make_rec(here / "rec", described)


@pytest.fixture
def bench(excite, model, voc, rec, monkeypatch):
    """An experiment without a page; grounding with precomputed proposals."""
    monkeypatch.setattr(localization, "CANVAS", (48, 48))  # boxes at 150 thresholds are most of the time

    def run(name, *arguments, data=None, methods="mwp"):
        known = ["--proposals", "boxes.json", "--side", 48] if name == "grounding" else []
        data = data or (rec if name == "grounding" else voc)
        return excite("bench", name, "--data", data, *known, "--methods", methods, *arguments, "--no-page")

    return run


@pytest.fixture
def photos(here):
    for name, squares in scenes(6):
        picture(here / "photos" / f"{name}.png", squares)
    return "photos"


@pytest.mark.parametrize("name", TABLES)
class TestBench:
    def test_several_networks(self, bench, name):
        asked = (name, "--model", "colours", "--model", "twin", "--out", "out")
        (answer,) = bench(*asked, "--json").answers
        *_, one, other = answer["rows"]
        assert (one.pop("model"), other.pop("model")) == ("colours", "twin")
        assert one == other
        assert ("all / difficult %  colours" in bench(*asked).out) is (name == "pointing")

    def test_usual_and_all_methods(self, bench, name):
        usual = {"pointing": POINTING_METHODS, "localization": LOCALIZATION_METHODS, "grounding": GROUNDING_METHODS}
        for methods in {usual[name]} if name == "grounding" else {usual[name], "all"}:
            (answer,) = bench(name, "--limit", 2, "--json", methods=methods).answers
            told = {what.split(" at ")[0] for what in answer["left_out"]["colours"]["unreadable"]}
            asked = list(METHODS) if methods == "all" else methods.split(",")
            rows = [row["method"] for row in answer["rows"] if row["method"] != "proposals"]
            assert rows == [method for method in asked if method not in told]

    def test_a_broken_picture_is_a_line_and_the_rest_is_complete(self, bench, voc, rec, name):
        path = rec / "images/003.png"
        Image.effect_noise((48, 48), 90).convert("RGB").save(path, format="JPEG")
        path.write_bytes(path.read_bytes()[:-900])  # its size can be read, but not its pixels
        (voc / "JPEGImages/000003.jpg").write_text("no image")
        ended = bench(name, "--json")
        unread, last = ended.err.splitlines()
        assert "003." in unread
        assert last == f"excite: 1 of {10 if name == 'grounding' else 24} images could not be read"
        assert [f"excite: {line}" for line in ended.answers[0]["failures"]] == [unread]


@pytest.mark.parametrize("name", ["pointing", "localization"])
def test_killed_again_and_again_it_gives_the_same_bytes(bench, voc, name):
    assert bench(name, "--out", "whole", methods="c-mwp,mwp").code == 0
    check_killed_again_and_again(name, voc, TABLES[name])


class TestPointing:
    def test_networks_of_one_name_are_called_as_they_were_asked_for(self, bench):
        (answer,) = bench("pointing", "--model", "a/head", "--model", "b/head", "--json").answers
        assert [row["model"] for row in answer["rows"]] == ["a/head", "b/head"]

    def test_layers(self, bench):
        asked = ("pointing", "--layer", 2, "--layer", 1, "--model", "colours", "--model", "twin")
        told = bench(*asked, methods="mwp,center").out
        assert "mwp at 2" in told
        assert "center at" not in told

    def test_what_was_left_out_is_told(self, bench, voc):
        picture(voc / "JPEGImages/blue.jpg", [("blue", (0, 0, 9, 9))])
        (voc / "Annotations/blue.xml").write_text(f"<annotation>{voc_object('blue', (0, 0, 9, 9))}</annotation>")
        (voc / "ImageSets/Main/val.txt").write_text("000001\n000002\nblue\n")
        told = "left out: targets the classifier has no word for: blue (1); images with nothing to look for: 1"
        assert f"{told}; categories without a difficult pair, no part of that mean: " in bench("pointing").out
        assert told in bench("localization").out


class TestGrounding:
    def test_the_paper_s_gammas_need_no_new_look(self, bench):
        (ours,) = bench("grounding", "--json", "--out", "out").answers
        looked = Path("out/choosing.jsonl").read_bytes()
        (papers,) = bench("grounding", "--gamma", "paper", "--json", "--out", "out").answers
        assert papers["rows"][1]["gamma"] in {0, 0.25, 0.5, 0.75, 1}
        assert papers["gammas"] == ours["gammas"]
        assert Path("out/choosing.jsonl").read_bytes() == looked

    def test_a_given_gamma(self, bench):
        (answer,) = bench("grounding", "--gamma", 0.5, "--trust", 0, "--no-hints", "--json", "--out", "out").answers
        assert (answer["held_out"], answer["reported"], answer["rows"][1]["gamma"]) == (0, 10, 0.5)
        assert (answer["protocol"]["gamma"], answer["protocol"]["held_out"], answer["gammas"]) == (0.5, None, [])
        assert (answer["protocol"]["trust"], answer["protocol"]["hints"]) == (0, False)
        assert not Path("out/choosing.jsonl").exists()

    def test_the_papers_tables_beside_its_data(self, bench, here):
        for folder in ("Sentences", "Annotations"):
            (here / "flickr" / folder).mkdir(parents=True)
        (here / "flickr/test.txt").write_text("000\n")
        (here / "flickr/Sentences/000.txt").write_text("[/EN#1/other A red square] and [/EN#2/other nothing] .\n")
        box = "<bndbox><xmin>5</xmin><ymin>5</ymin><xmax>12</xmax><ymax>12</ymax></bndbox>"
        size = "<size><width>48</width><height>48</height><depth>3</depth></size>"
        xml = f"<annotation>{size}<object><name>1</name>{box}</object></annotation>"
        (here / "flickr/Annotations/000.xml").write_text(xml)
        squares = [("red", (4, 4, 12, 12))]
        picture(here / "flickr/flickr30k-images/000.jpg", squares)
        write_proposals(here / "boxes.json", {"000": around(squares)})
        told = bench("grounding", "--gamma", 0.5, "--out", "out", data=here / "flickr").out.splitlines()
        groups = told.index("recall at 5 of each group:")
        assert told[groups + 1].split()[2:] == [*GROUPS, "mean"]
        assert told[groups + 3].split() == ["colours", "mwp", *["-"] * 7, "100.0", "100.0"]
        assert "the paper's recall at 5 of each group:" in told
        assert any(line.startswith("left out of the data: ") for line in told)
        assert "groups.csv" in told[-1]

    def test_other_systems(self, bench):
        lines = [
            {"image": name, "phrase": phrase.text, "boxes": [list(phrase.boxes[0])], "scores": [1]}
            for name, (_, phrases) in list(pictures(10).items())[:5]
            for phrase in phrases
        ]
        Path("cca.jsonl").write_text("\n".join(map(json.dumps, lines)))
        (answer,) = bench("grounding", "--results", "CCA=cca.jsonl", "--gamma", 0.5, "--json", "--out", "out").answers
        last = answer["rows"][-1]
        assert (last["method"], last["r1"], last["missing"], last["pointing"]) == ("CCA", 50, 15, None)
        assert [lead["over"] for lead in answer["leads"]] == ["proposals", "CCA"]
        assert "- CCA has no result for 15 of 30 phrases: misses" in Path("out/table.md").read_text()

    def test_made_proposals_are_kept_beside_the_results(self, bench):
        asked = ("grounding", "--proposals", "hierarchy", "--limit", 1, "--gamma", 0.5, "--json")
        (made,) = bench(*asked, "--out", "out").answers
        kept = list(Path("out/proposals").rglob("*.npz"))
        assert len(kept) == 1
        (read,) = bench(*asked, "--out", "other", "--cache", "out/proposals").answers
        assert read["rows"] == made["rows"]
        assert list(Path("out/proposals").rglob("*.npz")) == kept
        assert not Path("other/proposals").exists()


class TestLayers:
    def test_a_broken_picture_and_unknown_categories(self, excite, model, here):
        blue = [(f"blue{k}", [("blue", (0, 0, 9, 9))]) for k in range(3)]
        voc = make_voc(here / "voc", [*scenes(12), *blue])
        (voc / "JPEGImages/000003.jpg").write_text("no image")
        ended = excite("layers", "my/colours", "--data", voc, "--tolerance", 0)
        assert ended.code == 1
        told = "left out: targets the classifier has no word for: blue (3); images with nothing to look for: 3\n"
        assert told in ended.out
        assert json.loads(Path("excite-out/layers-my-colours/layers.json").read_text())["recommended"]["layer"] == "1"
        first, last = ended.err.splitlines()
        assert "000003.jpg" in first
        assert last == "excite: 1 of 15 images could not be read"


class TestCheck:
    def test_broken_pictures(self, excite, model, photos, here):
        (here / photos / "broken.png").write_bytes(b"no image")
        ended = excite("check", model, photos, "--no-page", "--only", "values")
        assert ended.code == 1
        assert "broken.png" in ended.err
        assert "1 of 7 images could not be read" in ended.err
        assert "on 6 images" in ended.out
        complaint = excite("check", model, f"{photos}/broken.png", "--no-page").complaint
        assert "none of the 1 images could be read" in complaint


def test_speed_from_end_to_end(excite, here):
    try:
        timm_models()
    except ImportError:
        pytest.skip("the small network is one of timm's")
    small = ("bench", "speed", "--model", "timm:test_resnet", "--quick", "--seconds", "0", "--out", "out")
    ended = excite(*small, "--layers", "all")
    assert ended.code == 0, ended.err
    assert "each further concept" in ended.out.splitlines()[0]
    assert "written: out/speed.md, out/speed.csv, out/speed.json, out/speed.png" in ended.out
    rows = excite(*small, "--layers", "all", "--no-peers", "--json").answers  # nothing is measured again
    assert rows == json.loads((here / "out" / "speed.json").read_text())

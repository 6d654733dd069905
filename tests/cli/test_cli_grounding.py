"""``excite bench grounding`` from the outside."""

import csv
import json
import re
from pathlib import Path

import pytest
from annotated import picture
from described import around, make_rec, pictures, write_proposals
from PIL import Image

from excite.datasets.flickr30k import GROUPS
from excite.experiments import GROUNDING_METHODS

TABLES = ("rows.json", "rows.csv", "curves.csv", "table.md")
MEASURES = ("r1", "r5", "r10", "map_group", "map_phrase", "pointing")


@pytest.fixture
def rec(here):
    """10 images of two squares with three phrases each, and proposals for all."""
    described = pictures(10)
    write_proposals(here / "boxes.json", {name: around(squares) for name, (squares, _) in described.items()})
    return make_rec(here / "rec", described)


@pytest.fixture
def measure(excite, model, rec):
    def run(*arguments, data=rec, page=False, proposals="boxes.json", methods="mwp"):
        asked = ["--data", data, "--proposals", proposals, "--side", 48, "--methods", methods]
        return excite("bench", "grounding", *asked, *arguments, *([] if page else ["--no-page"]))

    return run


class TestAnswers:
    def test_tables_sentences_and_files(self, measure):
        ended = measure("--out", "out", methods="c-mwp,mwp")
        assert (ended.code, ended.err) == (0, "")
        header, own, first, second, blank, title, *rest = ended.out.splitlines()
        columns = ["model", "method", "gamma", "R@1", "R@5", "R@10", "mAP group", "mAP phrase", "pointing"]
        assert re.split(r" {2,}", header) == columns
        assert [line.split()[:2] for line in (own, first, second)] == [
            ["-", "proposals"],
            ["colours", "c-mwp"],
            ["colours", "mwp"],
        ]
        assert (blank, title) == ("", "small instances, below a quarter of the image:")
        assert "rec val: 24 phrases, 24 of them small, in 8 images, with 95 % intervals; images held out" in ended.out
        assert "proposals: boxes.json, 9 in an image; one of them is right for 100.0 % of the phrases" in rest
        assert "colours: words skipped most: square (8)" in rest
        assert any(
            re.fullmatch(r"colours: where the time went: proposals .* %, scoring [\d.]+ %", line) for line in rest
        )
        assert rest[-1] == f"written: {', '.join(f'out/{name}' for name in TABLES)}"

    def test_json_is_one_object_and_what_the_files_say(self, measure):
        (answer,) = measure("--json", "--out", "out").answers
        assert sum(answer.pop("seconds")["colours"].values()) == pytest.approx(100, abs=0.2)
        assert answer == json.loads(Path("out/rows.json").read_text())
        own, row = answer["rows"]
        assert (own["model"], own["method"], own["gamma"]) == ("", "proposals", None)
        assert (row["model"], row["method"]) == ("colours", "mwp")
        assert 0 <= row["gamma"] <= 1
        assert {*MEASURES, *(f"{name}_small" for name in MEASURES)} <= row.keys()
        for name in ("r1", "r5", "r10", "pointing"):
            low, high = row[f"{name}_interval"]
            assert low <= row[name] <= high
        assert (row["map_group"], answer["groups"]) == (None, [])  # nobody said what kinds of things they are
        assert len(answer["gammas"]) == 21
        assert (answer["pictures"], answer["held_out"], answer["reported"], answer["phrases"]) == (10, 2, 8, 24)
        assert answer["protocol"].pop("trust") > 0
        assert answer["protocol"] == {
            "proposals": "boxes.json",
            "truth": "union",
            "gamma": [step / 20 for step in range(21)],
            "held_out": 0.2,
            "seed": 0,
            "side": 48,
            "hints": True,
        }
        assert answer["left_out"]["colours"]["skipped"] == {"square": 8}
        with Path("out/rows.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert [(line["method"], float(line["r1"]), float(line["r5_low"])) for line in rows] == [
            (line["method"], line["r1"], line["r5_interval"][0]) for line in answer["rows"]
        ]
        with Path("out/curves.csv").open() as file:
            curves = list(csv.DictReader(file))
        assert [float(line["recall"]) for line in curves if line["boxes"] == "5"] == [own["r5"], row["r5"]]
        table = Path("out/table.md").read_text()
        assert table.startswith("| model | method | gamma | R@1 |")
        assert "| c-MWP (MCG) | 0.5 | 26.2 / 21.2 |" in table

    def test_the_paper_s_gammas_need_no_new_look(self, measure):
        (ours,) = measure("--json", "--out", "out").answers
        looked = Path("out/choosing.jsonl").read_bytes()
        (papers,) = measure("--gamma", "paper", "--json", "--out", "out").answers
        assert papers["rows"][1]["gamma"] in {0, 0.25, 0.5, 0.75, 1}
        assert papers["gammas"] == ours["gammas"]
        assert Path("out/choosing.jsonl").read_bytes() == looked

    def test_a_given_gamma_and_several_networks(self, measure):
        options = ("--gamma", 0.5, "--trust", 0, "--no-hints", "--model", "colours", "--model", "twin")
        (answer,) = measure(*options, "--json", "--out", "out").answers
        assert (answer["held_out"], answer["reported"], answer["rows"][1]["gamma"]) == (0, 10, 0.5)
        assert (answer["protocol"]["gamma"], answer["protocol"]["held_out"], answer["gammas"]) == (0.5, None, [])
        assert (answer["protocol"]["trust"], answer["protocol"]["hints"]) == (0, False)
        assert not Path("out/choosing.jsonl").exists()
        own, one, other = answer["rows"]
        assert (own["method"], one.pop("model"), other.pop("model")) == ("proposals", "colours", "twin")
        assert one == other

    def test_the_papers_tables_beside_its_data(self, measure, here):
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
        write_proposals(here / "flickr.json", {"000": around(squares)})
        ended = measure("--gamma", 0.5, "--out", "out", data=here / "flickr", proposals="flickr.json")
        assert (ended.code, ended.err) == (0, "")
        told = ended.out.splitlines()
        groups = told.index("recall at 5 of each group:")
        assert told[groups + 1].split()[2:] == [*GROUPS, "mean"]
        assert told[groups + 3].split() == ["colours", "mwp", *["-"] * 7, "100.0", "100.0"]
        assert any(
            line.split() == ["MWP", "(MCG)", "0.5", *"28.5 / 15.0 52.7 / 39.1".split(), *line.split()[9:]]
            for line in told
        )
        assert "the paper's recall at 5 of each group:" in told
        assert any(line.startswith("left out of the data: ") for line in told)
        assert "groups.csv" in told[-1]

    def test_the_size_is_the_side_where_none_is_given(self, excite, model, rec):
        asked = ["--data", rec, "--proposals", "boxes.json", "--methods", "mwp", "--gamma", 0.5, "--limit", 1]
        (answer,) = excite("bench", "grounding", *asked, "--size", 40, "--no-page", "--json").answers
        assert answer["protocol"]["side"] == 40

    def test_usual_methods(self, measure):
        (answer,) = measure("--gamma", 0.5, "--limit", 2, "--json", methods=GROUNDING_METHODS).answers
        told = [what.split(" at ")[0] for what in answer["left_out"]["colours"]["unreadable"]]
        asked = [method for method in GROUNDING_METHODS.split(",") if method not in told]
        assert [row["method"] for row in answer["rows"]] == ["proposals", *asked]

    def test_other_systems(self, measure):
        lines = [
            {"image": name, "phrase": phrase.text, "boxes": [list(phrase.boxes[0])], "scores": [1]}
            for name, (_, phrases) in list(pictures(10).items())[:5]
            for phrase in phrases
        ]
        Path("cca.jsonl").write_text("\n".join(map(json.dumps, lines)))
        (answer,) = measure("--results", "CCA=cca.jsonl", "--gamma", 0.5, "--json", "--out", "out").answers
        last = answer["rows"][-1]
        assert (last["method"], last["r1"], last["missing"], last["pointing"]) == ("CCA", 50, 15, None)
        assert [lead["over"] for lead in answer["leads"]] == ["proposals", "CCA"]
        assert "- CCA has no result for 15 of 30 phrases: misses" in Path("out/table.md").read_text()

    def test_a_page(self, measure):
        ended = measure("--limit", 1, "--gamma", 0.5, "--out", "out", page=True)
        assert (ended.code, ended.err) == (0, "")
        assert ended.out.endswith("out/grounding.html\n")
        assert "excite bench grounding --data" in Path("out/grounding.html").read_text()


class TestProposals:
    def test_made_ones_are_kept_beside_the_results(self, measure):
        asked = ("--limit", 1, "--gamma", 0.5, "--json")
        (made,) = measure(*asked, "--out", "out", proposals="hierarchy").answers
        kept = list(Path("out/proposals").rglob("*.npz"))
        assert len(kept) == 1
        (read,) = measure(*asked, "--out", "other", "--cache", "out/proposals", proposals="hierarchy").answers
        assert read["rows"] == made["rows"]
        assert list(Path("out/proposals").rglob("*.npz")) == kept
        assert not Path("other/proposals").exists()


class TestBroken:
    def test_a_line_each_and_the_rest_is_complete(self, measure, rec):
        path = rec / "images/003.png"
        Image.effect_noise((48, 48), 90).convert("RGB").save(path, format="JPEG")
        path.write_bytes(path.read_bytes()[:-900])  # its size can be read, but not its pixels
        ended = measure("--gamma", 0.5, "--json")
        assert ended.code == 1
        (answer,) = ended.answers
        unread, last = ended.err.splitlines()
        assert "003.png" in unread
        assert last == "excite: 1 of 10 images could not be read"
        assert (answer["reported"], [f"excite: {line}" for line in answer["failures"]]) == (9, [unread])

    @pytest.mark.parametrize(
        ("arguments", "code", "words"),
        [
            (["--truth", "some"], 1, ["no truth 'some'", "union or any"]),
            (["--gamma", "nan"], 2, ["--gamma is search, paper or a number from 0 to 1, not 'nan'"]),
            (["--proposals", "hierarchi"], 1, ["no proposals 'hierarchi'", "did you mean hierarchy"]),
            (["--results", "cca.jsonl"], 2, ["--results is NAME=FILE"]),
            (["--results", "a\nb=cca.jsonl"], 2, ["--results is NAME=FILE"]),
            (["--results", "mwp=cca.jsonl"], 2, ["a row 'mwp' already"]),
        ],
    )
    def test_one_line(self, measure, arguments, code, words):
        ended = measure(*arguments)
        assert ended.code == code
        assert all(word in ended.complaint for word in words)

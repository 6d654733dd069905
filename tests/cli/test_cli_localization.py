"""``excite bench localization`` from the outside, and as a process that is killed again and again."""

import csv
import json
import re
from pathlib import Path

import pytest
from annotated import make_imagenet, picture, scenes, voc_object
from processes import check_killed_again_and_again

from excite.experiments import LOCALIZATION_METHODS
from excite.experiments.localization.scores import RULES
from excite.methods import METHODS

TABLES = ("rows.json", "rows.csv", "curves.csv", "table.md")


@pytest.fixture
def measure(excite, model, voc):
    def run(*arguments, data=voc, page=False):
        return excite("bench", "localization", "--data", data, *arguments, *([] if page else ["--no-page"]))

    return run


class TestAnswers:
    def test_a_table_sentences_and_files(self, measure):
        ended = measure("--methods", "c-mwp,mwp", "--out", "out")
        assert (ended.code, ended.err) == (0, "")
        header, first, second, measured, written = ended.out.splitlines()
        names = [
            "model",
            "method",
            "layer",
            "alpha",
            "error %",
            "largest component",
            "t x max",
            "MaxBoxAcc",
            "MaxBoxAccV2",
        ]
        assert re.split(r" {2,}", header) == names
        assert first.split()[:3] == ["colours", "c-mwp", "1"]
        assert second.split()[:3] == ["colours", "mwp", "1"]
        assert measured.startswith("colours on voc val: errors on ")
        assert "in 19 images, with 95 % intervals; images held out to choose thresholds on: 5;" in measured
        assert written == f"written: {', '.join(f'out/{name}' for name in TABLES)}"

    def test_json_is_one_object_and_what_the_file_says(self, measure):
        (answer,) = measure("--json", "--out", "out").answers
        assert answer == json.loads(Path("out/rows.json").read_text())
        told = [what.split(" at ")[0] for what in answer["left_out"]["colours"]["unreadable"]]
        methods = [row["method"] for row in answer["rows"]]
        assert methods == [method for method in LOCALIZATION_METHODS.split(",") if method not in told]
        row = answer["rows"][methods.index("mwp")]
        assert (row["model"], row["layer"]) == ("colours", "1")
        assert row["error_interval"][0] <= row["error"] <= row["error_interval"][1]
        assert row["rules"].keys() == RULES.keys()
        assert (row["alpha"], row["error"]) == (row["rules"]["paper"]["threshold"], row["rules"]["paper"]["error"])
        assert (answer["split"], answer["pictures"], answer["failures"]) == ("val", 24, [])
        assert answer["protocol"] == {
            "shape": "squashed to a square",
            "canvas": [224, 224],
            "held_out": 0.2,
            "seed": 0,
        }
        assert (answer["held_out"], answer["reported"]) == ({"colours": 5}, {"colours": 19})

    def test_tables_say_the_same(self, measure):
        (answer,) = measure("--methods", "mwp,c-mwp", "--layer", 2, "--layer", 1, "--json", "--out", "out").answers
        with Path("out/rows.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert [(row["method"], row["layer"], float(row["alpha"]), float(row["error"])) for row in rows] == [
            (row["method"], row["layer"], row["alpha"], row["error"]) for row in answer["rows"]
        ]
        last = answer["rows"][-1]
        assert [float(rows[-1][f"error_{side}"]) for side in ("low", "high")] == last["error_interval"]
        assert float(rows[-1]["largest_error"]) == last["rules"]["largest"]["error"]
        assert float(rows[-1]["max_box_acc_v2_0.7"]) == last["max_box_acc_v2"]["0.7"]
        with Path("out/curves.csv").open() as file:
            curves = list(csv.DictReader(file))
        assert len(curves) == 4 * sum(len(rule.thresholds) for rule in RULES.values())
        for row in answer["rows"]:
            for rule, told in row["rules"].items():
                (at,) = (
                    line
                    for line in curves
                    if (line["method"], line["layer"], line["rule"]) == (row["method"], row["layer"], rule)
                    and float(line["threshold"]) == told["threshold"]
                )
                assert float(at["error"]) == told["error"]

    def test_the_papers_errors_beside_its_data(self, measure, here):
        scene = [(name, squares[:1]) for name, squares in scenes(8)]
        folder = make_imagenet(here / "imagenet", scene, ["red", "green"])
        ended = measure("--methods", "mwp,grad-cam", "--out", "out", data=folder)
        header, first, second, *_ = ended.out.splitlines()
        assert header.endswith("paper's error")
        assert (first.split()[-1], second.split()[-1]) == ("38.7", "-")
        table = Path("out/table.md").read_text()
        assert table.startswith("| model | method | layer | alpha | error % | largest component |")
        assert "(GoogleNet, ImageNet val):" in table
        assert "| Deconv (guided backprop) | 4.5 | 41.6 |" in table
        assert "| Feedback | - | 38.8 |" in table

    def test_several_networks(self, measure):
        (answer,) = measure("--model", "colours", "--model", "twin", "--methods", "mwp", "--json").answers
        one, other = answer["rows"]
        assert (one.pop("model"), other.pop("model")) == ("colours", "twin")
        assert one == other

    def test_another_share_and_seed(self, measure):
        (answer,) = measure("--methods", "mwp", "--held-out", 0.5, "--seed", 4, "--json").answers
        assert (answer["held_out"], answer["reported"]) == ({"colours": 12}, {"colours": 12})
        assert answer["protocol"]["seed"] == 4

    def test_own_shape(self, measure):
        (answer,) = measure("--methods", "mwp", "--own-shape", "--json").answers
        assert answer["protocol"]["shape"] == "its own"

    def test_all_methods(self, measure):
        (answer,) = measure("--methods", "all", "--limit", 3, "--json").answers
        told = {what.split(" at ")[0] for what in answer["left_out"]["colours"]["unreadable"]}
        assert {row["method"] for row in answer["rows"]} | told == set(METHODS)

    def test_what_was_left_out_is_told(self, measure, voc):
        picture(voc / "JPEGImages/blue.jpg", [("blue", (0, 0, 9, 9))])
        (voc / "Annotations/blue.xml").write_text(f"<annotation>{voc_object('blue', (0, 0, 9, 9))}</annotation>")
        (voc / "ImageSets/Main/val.txt").write_text("000001\n000002\nblue\n")
        told = measure("--methods", "mwp").out
        assert "left out: targets the classifier has no word for: blue (1); images with nothing to look for: 1" in told

    def test_a_page(self, measure):
        ended = measure("--methods", "mwp,center", "--limit", 6, "--out", "out", page=True)
        assert (ended.code, ended.err) == (0, "")
        assert ended.out.endswith("out/localization.html\n")
        assert "excite bench localization --data" in Path("out/localization.html").read_text()


class TestBroken:
    def test_a_line_each_and_the_rest_is_complete(self, measure, voc):
        (voc / "JPEGImages/000003.jpg").write_text("no image")
        ended = measure("--methods", "mwp", "--json")
        assert ended.code == 1
        (answer,) = ended.answers
        unread, last = ended.err.splitlines()
        assert "000003.jpg" in unread
        assert last == "excite: 1 of 24 images could not be read"
        assert [f"excite: {line}" for line in answer["failures"]] == [unread]
        assert (answer["held_out"], answer["reported"]) == ({"colours": 5}, {"colours": 18})

    @pytest.mark.parametrize(
        ("arguments", "code", "words"),
        [
            (["--split", "tset"], 1, ["no split 'tset'"]),
            (["--methods", "mwp,mpw"], 1, ["no method 'mpw'", "mwp"]),
            (["--layer", "77"], 1, ["no layer '77'"]),
            (["--held-out", "1"], 1, ["a share of 1", "between 0 and 1"]),
            (["--held-out", "nan"], 1, ["a share of nan"]),
            (["--held-out", "half"], 2, ["--held-out"]),
            (["--methods", "mwp", "--limit", "1"], 1, ["too few images"]),
            (["--skip", "99"], 1, ["none of these 0 images"]),
            (["--model", "a", "--model", "b", "--weights", "w.pth"], 1, ["for one --model"]),
            (["--limit", "0"], 2, ["--limit"]),
        ],
    )
    def test_one_line(self, measure, arguments, code, words):
        ended = measure(*arguments)
        assert ended.code == code
        assert all(word in ended.complaint for word in words)


def test_killed_again_and_again_it_gives_the_same_bytes(measure, voc):
    assert measure("--methods", "c-mwp,mwp", "--out", "whole").code == 0
    check_killed_again_and_again("localization", voc, TABLES)

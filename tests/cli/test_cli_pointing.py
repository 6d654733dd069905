"""``excite bench pointing`` from the outside, and as a process that is killed again and again."""

import csv
import json
from pathlib import Path

import pytest
from annotated import picture, voc_object
from processes import check_killed_again_and_again

from excite.methods import METHODS

TABLES = ("rows.json", "rows.csv", "categories.csv", "table.md")


@pytest.fixture
def play(excite, model, voc):
    def run(*arguments, page=False):
        return excite("bench", "pointing", "--data", voc, *arguments, *([] if page else ["--no-page"]))

    return run


class TestAnswers:
    def test_a_table_sentences_and_files(self, play):
        ended = play("--methods", "c-mwp,mwp", "--tolerance", 3, "--out", "out")
        assert (ended.code, ended.err) == (0, "")
        header, first, second, measured, won, written = ended.out.splitlines()
        assert header.split() == ["model", "method", "layer", "all", "%", "difficult", "%", "empty", "maps"]
        assert first.split()[:3] == ["colours", "c-mwp", "1"]
        assert second.split()[:3] == ["colours", "mwp", "1"]
        assert measured.startswith("colours on voc val: 24 images, 32 pairs of an image and one of 2 categories, 16 of")
        assert won.startswith("categories won")
        assert written == f"written: {', '.join(f'out/{name}' for name in TABLES)}"

    def test_json_is_one_object_and_what_the_file_says(self, play):
        (answer,) = play("--json", "--out", "out").answers
        assert answer == json.loads(Path("out/rows.json").read_text())
        assert [row["method"] for row in answer["rows"]] == ["excite", "c-mwp", "mwp", "center"]
        row = answer["rows"][0]
        assert {"model", "method", "layer", "all", "difficult", "pairs"} <= row.keys()
        assert (row["model"], row["layer"], row["pairs"], row["difficult_pairs"]) == ("colours", "1", 32, 16)
        assert row["all_interval"][0] <= row["all"] <= row["all_interval"][1]
        assert (answer["split"], answer["pictures"], answer["failures"]) == ("val", 24, [])
        assert answer["protocol"] == {
            "protocol": "authors",
            "tolerance": 15,
            "inclusive": True,
            "difficult": "the paper's rule",
        }
        assert answer["output"] == {"colours": "the whole image"}
        assert answer["left_out"]["colours"]["unknown"] == {}

    def test_tables_say_the_same(self, play):
        (answer,) = play("--json", "--out", "out").answers
        with Path("out/rows.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert [(row["method"], float(row["all"]), int(row["pairs"])) for row in rows] == [
            (row["method"], row["all"], row["pairs"]) for row in answer["rows"]
        ]
        assert [float(rows[0]["all_low"]), float(rows[0]["all_high"])] == answer["rows"][0]["all_interval"]
        with Path("out/categories.csv").open() as file:
            shares = [line for line in csv.DictReader(file) if line["method"] == "center"]
        mean = sum(100 * int(line["hits"]) / int(line["pairs"]) for line in shares) / len(shares)
        assert round(mean, 2) == answer["rows"][-1]["all"]
        table = Path("out/table.md").read_text().splitlines()
        assert table[0] == "| model | method | layer | all % | difficult % | empty maps |"
        assert table[2].startswith(f"| colours | excite | 1 | {answer['rows'][0]['all']:.1f} (")

    def test_several_networks(self, play):
        (answer,) = play("--model", "colours", "--model", "twin", "--methods", "mwp", "--json", "--out", "out").answers
        one, other = answer["rows"]
        assert (one["model"], other["model"]) == ("colours", "twin")
        assert one["all"] == other["all"]
        again = play("--model", "colours", "--model", "twin", "--methods", "mwp", "--out", "out").out
        assert "all / difficult %  colours" in again
        assert f"mwp                {one['all']:.1f} / {one['difficult']:.1f}" in again

    def test_networks_of_one_name_are_called_as_they_were_asked_for(self, play):
        (answer,) = play("--model", "a/head", "--model", "b/head", "--methods", "mwp", "--json").answers
        assert [row["model"] for row in answer["rows"]] == ["a/head", "b/head"]

    def test_layers(self, play):
        options = ("--methods", "mwp,center", "--layer", 2, "--layer", 1)
        (answer,) = play(*options, "--json").answers
        assert [(row["method"], row["layer"]) for row in answer["rows"]][:2] == [("mwp", "2"), ("mwp", "1")]
        assert len(answer["rows"]) == 3
        twice = play(*options, "--model", "colours", "--model", "twin").out
        assert "mwp at 2" in twice
        assert "center at" not in twice

    def test_all_methods(self, play):
        (answer,) = play("--methods", "all", "--limit", 2, "--json").answers
        told = {what.split(" at ")[0] for what in answer["left_out"]["colours"]["unreadable"]}
        assert {row["method"] for row in answer["rows"]} | told == set(METHODS)
        assert len(answer["rows"]) > 2

    def test_a_list_of_difficult_pairs(self, play):
        Path("list.txt").write_text("000000 red\n000003 green\n")
        (answer,) = play("--methods", "mwp", "--difficult", "list.txt", "--json").answers
        assert answer["rows"][0]["difficult_pairs"] == 2
        assert answer["protocol"]["difficult"] == "a list"

    def test_what_was_left_out_is_told(self, play, voc):
        picture(voc / "JPEGImages/blue.jpg", [("blue", (0, 0, 9, 9))])
        (voc / "Annotations/blue.xml").write_text(f"<annotation>{voc_object('blue', (0, 0, 9, 9))}</annotation>")
        (voc / "ImageSets/Main/val.txt").write_text("000001\nblue\n")
        told = play("--methods", "mwp").out
        assert (
            "left out: targets the classifier has no word for: blue (1); images with nothing to look for: 1; "
            "categories without a difficult pair, no part of that mean: red\n"
        ) in told

    def test_a_page(self, play):
        ended = play("--methods", "mwp,center", "--limit", 6, "--out", "out", page=True)
        assert ended.code == 0
        assert ended.out.endswith("out/pointing.html\n")
        assert "excite bench pointing --data" in Path("out/pointing.html").read_text()


class TestBroken:
    def test_a_line_each_and_the_rest_is_complete(self, play, voc):
        (voc / "JPEGImages/000003.jpg").write_text("no image")
        (voc / "Annotations/000005.xml").write_text("<annotation><object><name>red</name></object></annotation>")
        ended = play("--methods", "mwp", "--json")
        assert ended.code == 1
        (answer,) = ended.answers
        broken, unread, last = ended.err.splitlines()
        assert "000005.xml, object 1" in broken
        assert "000003.jpg" in unread
        assert last == "excite: 2 of 24 images could not be read"
        assert [f"excite: {line}" for line in answer["failures"]] == [broken, unread]
        assert answer["rows"][0]["pairs"] == 32 - 2 - 1

    def test_an_empty_split(self, play, voc):
        (voc / "ImageSets/Main/val.txt").write_text("\n")
        assert "lists no images" in play().complaint

    @pytest.mark.parametrize(
        ("arguments", "code", "words"),
        [
            (["--split", "tset"], 1, ["no split 'tset'"]),
            (["--methods", "mwp,mpw"], 1, ["no method 'mpw'", "mwp"]),
            (["--layer", "77"], 1, ["no layer '77'"]),
            (["--protocol", "paper"], 1, ["no protocol 'paper'", "authors, torchray"]),
            (["--protocol", "torchray", "--tolerance", "0"], 1, ["nothing is a hit"]),
            (["--difficult", "nowhere.txt"], 1, ["nowhere.txt"]),
            (["--skip", "99"], 1, ["none of these 0 images"]),
            (["--model", "a", "--model", "b", "--weights", "w.pth"], 1, ["for one --model"]),
            (["--limit", "0"], 2, ["--limit"]),
        ],
    )
    def test_one_line(self, play, arguments, code, words):
        ended = play(*arguments)
        assert ended.code == code
        assert all(word in ended.complaint for word in words)


def test_killed_again_and_again_it_gives_the_same_bytes(play, voc):
    assert play("--methods", "c-mwp,mwp", "--out", "whole").code == 0
    check_killed_again_and_again("pointing", voc, TABLES)

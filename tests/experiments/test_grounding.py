"""Grounding on coloured squares: known proposals, and a network with known maps."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from annotated import SIDE
from described import GREEN, RED, WHOLE, Said, around, first_hit, pictures, write_proposals
from pages import Page
from PIL import Image

import excite
from excite.datasets.base import Phrase
from excite.errors import DataError, ModelError
from excite.experiments.grounding.measure import GAMMAS
from excite.experiments.grounding.report import GroundingReport, PhraseCases
from excite.experiments.grounding.run import Grounding
from excite.experiments.report.examples import best_of_each_kind
from excite.grounding.ground import GAMMA
from excite.grounding.proposals import find_proposer

FAST = {"side": SIDE}


@pytest.fixture
def asked(classifier, tmp_path):
    """Makes an experiment on some images, with proposals around their squares unless others are given."""

    def make(described, methods=("mwp",), boxes=None, groups=("warm", "cold"), **options):
        dataset = Said(tmp_path / "said", described, groups)
        if boxes is None:
            boxes = {name: around(squares) for name, (squares, _) in described.items()}
        path = write_proposals(tmp_path / "boxes.json", boxes)
        return Grounding(classifier, dataset, methods, proposals=str(path), **{**FAST, **options})

    return make


def measured(asking, out):
    chosen = asking.choose(list(asking.choosing(out)))
    records = list(asking.records(out, chosen))
    return chosen, records, asking.run(chosen, records)


def ground_hits(classifier, described, source, **options):
    """The rank of the right box of each phrase, with the public function, the whole image as a region like all others.

    So the experiment ranks, as the paper does; `excite.ground` itself puts the image behind what it shows.
    """
    texts = [phrase.text for phrase in described.phrases]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["excite.grounding.ground"], "WHOLE", 1.0)
        found = excite.ground(classifier, described.path, texts, proposals=source, side=SIDE, **options)
    boxes = [[region.box for region in grounded.regions] for grounded in found]
    return [first_hit(*both) for both in zip(boxes, [phrase.boxes for phrase in described.phrases], strict=True)]


def one_picture(*phrases):
    return {"a.png": ([("red", RED), ("green", GREEN)], list(phrases))}


class TestByHand:
    """The whole image is proposed first, then the green square, then the red one: densest wins with gamma 1."""

    def rows(self, asked, tmp_path, **options):
        settings = {"boxes": {"a.png": [WHOLE, GREEN, RED]}, "gamma": 1.0, "trust": 0.0, "hints": False, "layer": "1"}
        phrases = Phrase("red", (RED,), "warm"), Phrase("green", (GREEN,), "cold")
        both = Phrase("red", (WHOLE,), "warm", also=("cold",))
        _, records, run = measured(asked(one_picture(*phrases, both), **settings | options), tmp_path / "out")
        return records[0], run

    def test_ranks_and_rows(self, asked, tmp_path):
        record, run = self.rows(asked, tmp_path)
        assert [phrase["own_hits"]["union"] for phrase in record["phrases"]] == [3, 2, 1]
        assert [phrase["found"][0]["hits"]["union"] for phrase in record["phrases"]] == [1, 1, 2]
        red, _, both = record["phrases"]
        assert (red["small"], both["small"]) == ({"union": True, "any": True}, {"union": False, "any": False})
        assert len(red["found"][0]["scores"]) == 2  # nothing red is in the green square
        (row,), (own,) = run.rows, run.shared
        assert (row.model, row.method, row.layer, row.chosen.gamma) == ("colours", "mwp", "1", 1.0)
        assert [found.value for found in row.all.recalls.values()] == pytest.approx([200 / 3, 100, 100])
        assert [found.value for found in own.all.recalls.values()] == pytest.approx([100 / 3, 100, 100])
        assert own.all.curve == pytest.approx([100 / 3, 200 / 3, *[100] * 8])
        assert (row.all.phrases, row.small.phrases) == (3, 2)
        assert (row.small.recalls[1].value, own.small.recalls[1].value) == (100, 0)
        assert (row.all.pointing.value, own.all.pointing) == (100, None)
        assert row.groups == {"warm": 100, "cold": 100}
        assert row.group_mean == 100


class TestMeasuring:
    def test_ranks_are_those_of_ground(self, asked, classifier, tmp_path):
        asking = asked(pictures(3), ["mwp", "c-mwp", "center"], gamma=0.25)
        _, records, run = measured(asking, tmp_path / "out")
        source = find_proposer(asking.work.proposals)
        for method in ("mwp", "c-mwp", "center"):
            hits = []
            for described in asking.dataset:
                hits += ground_hits(classifier, described, source, method=method, gamma=0.25, most=None)
            told = [one["hits"]["union"] for one in _found(records, method)]
            assert told == hits
            row = next(row for row in run.rows if row.method == method)
            assert row.all.recalls[5].value == pytest.approx(100 * sum((hit or 99) <= 5 for hit in hits) / len(hits))

    def test_gamma_is_chosen_on_held_out_pictures_only(self, asked, classifier, tmp_path):
        asking = asked(pictures(5), held_out=0.4)
        chosen, records, run = measured(asking, tmp_path / "out")
        assert len(asking.held) == 2
        assert not asking.held & {record["image"] for record in records}
        source, curve = find_proposer(asking.work.proposals), []
        for gamma in GAMMAS:
            hits = []
            for name in asking.held:
                hits += ground_hits(classifier, asking.dataset.sample(name), source, method="mwp", gamma=gamma)
            curve.append(100 * sum((hit or 99) <= rank for hit in hits for rank in (1, 5, 10)) / len(hits) / 3)
        assert chosen["mwp"].curve == pytest.approx(curve)
        best = [gamma for gamma, worth in zip(GAMMAS, curve, strict=True) if worth == pytest.approx(max(curve))]
        assert chosen["mwp"].gamma == min(best, key=lambda gamma: abs(gamma - GAMMA))
        assert len(set(curve)) > 1
        assert run.rows[0].chosen == chosen["mwp"]
        assert (run.about["held_out_pictures"], run.about["reported"]) == (2, 3)

    def test_any_of_the_boxes(self, asked, tmp_path):
        both = Phrase("red and green", (RED, GREEN), "warm")
        boxes = {"a.png": [RED, (2, 2, 44, 46)]}
        runs = {}
        for truth in ("union", "any"):
            asking = asked(one_picture(both), boxes=boxes, gamma=1.0, truth=truth, hints=False)
            _, (record,), runs[truth] = measured(asking, tmp_path / "out")
            assert record["phrases"][0]["found"][0]["hits"] == {"union": 2, "any": 1}
        assert [runs[truth].rows[0].all.recalls[1].value for truth in runs] == [0, 100]
        assert (tmp_path / "out/records.jsonl").read_text().count("\n") == 1  # the other truth needs no new look

    def test_resumed_it_gives_the_same_tables(self, asked, tmp_path):
        def tables(out):
            _, _, run = measured(asked(pictures(8)), out)
            return {path.name: path.read_bytes() for path in GroundingReport([run]).write_tables(out)}

        whole = tables(tmp_path / "whole")
        killed = tmp_path / "killed"
        killed.mkdir()
        for name, lines in (("choosing.jsonl", 1), ("records.jsonl", 3)):
            text = (tmp_path / "whole" / name).read_text().splitlines(keepends=True)
            (killed / name).write_text("".join(text[:lines]) + text[lines][:50])  # the last line was cut off
        assert tables(killed) == whole
        assert whole.keys() == {"rows.json", "rows.csv", "groups.csv", "curves.csv", "table.md"}

    @pytest.mark.parametrize(
        ("other", "same"),
        [
            ({"truth": "any"}, True),
            ({"gamma": 0.75}, False),
            ({"hints": False}, False),
            ({"trust": 0.1}, False),
            ({"side": 2 * SIDE}, False),
            ({"boxes": {"000.png": [RED]}}, False),
        ],
    )
    def test_what_needs_a_new_look(self, asked, other, same):
        def key(**options):
            asking = asked(pictures(1), **{"gamma": 0.5, **options})
            return replace(asking.work, gammas={"mwp": asking.gamma}).key(asking.tasks[0])

        assert (key() == key(**other)) is same


class TestLeftOut:
    def test_a_picture_without_proposals_is_missed(self, asked, tmp_path):
        described = pictures(2)
        boxes = {"000.png": around(described["000.png"][0])}
        _, records, run = measured(asked(described, boxes=boxes, gamma=0.5), tmp_path / "out")
        assert [record["proposals"] for record in records] == [9, 0]
        assert "no proposals for the image '001.png'" in records[1]["trouble"]
        assert all(found["hits"] == {"union": None, "any": None} for found in _found(records[1:], "mwp"))
        assert all(found["pointed"]["any"] for found in _found(records[1:], "mwp")[:2])
        assert (run.about["left_out"]["without_proposals"], run.rows[0].all.phrases) == (1, 6)

    def test_a_picture_that_cannot_be_read_or_has_another_size_is_a_failure(self, asked, tmp_path):
        asking = asked(pictures(3), gamma=0.5)
        (asking.dataset.folder / "001.png").write_text("no image")
        Image.new("RGB", (20, 20)).save(asking.dataset.folder / "002.png")
        _, records, run = measured(asking, tmp_path / "out")
        assert [record["image"] for record in records] == ["000.png"]
        unreadable, scaled = run.about["failures"]
        assert "001.png" in unreadable
        assert "is 20 x 20 pixels, but annotated for 48 x 48" in scaled

    def test_unknown_words_are_told_and_asked_all_the_same(self, asked, tmp_path):
        phrases = Phrase("zebra", (RED,), "warm"), Phrase("a Zebra and a red okapi", (RED,), "warm")
        _, (record,), run = measured(asked(one_picture(*phrases), gamma=1.0), tmp_path / "out")
        left_out = run.about["left_out"]
        assert (left_out["unknown"], left_out["skipped"]) == (1, {"zebra": 2, "okapi": 1})
        assert left_out["skipped_in_all"] == 3
        assert left_out["data"] == {"phrases without a box": 3}
        assert record["phrases"][0]["found"][0]["point"] is not None

    def test_empty_maps_are_told(self, asked, tmp_path):
        """No green is to be seen, so nothing of a signal for it arrives."""
        described = {"a.png": ([("red", RED)], [Phrase("green", (RED,)), Phrase("red", (RED,))])}
        _, (record,), run = measured(asked(described, gamma=0.5, hints=False), tmp_path / "out")
        assert run.about["left_out"]["empty"] == {"mwp": 1}
        found = record["phrases"][0]["found"][0]
        assert (found["scores"], found["hits"]["any"], found["pointed"]["any"]) == ([], None, False)


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"truth": "some"}, "no truth 'some': choose union or any"),
            ({"limit": 0}, "leave no images"),
            ({"skip": 9}, "none of these 0 images has phrases"),
            ({"limit": 1}, "too few images"),
            ({"held_out": 1.0}, "a share of 1 of the images"),
            ({"gamma": (0.25, 0.33)}, "gamma cannot be 0.33: give those of GAMMAS"),
            ({"gamma": ()}, "gamma cannot be one of none"),
            ({"gamma": float("nan")}, "gamma cannot be nan: give a number from 0 to 1"),
            ({"trust": float("nan")}, "the trust .* from 0 to 1, not nan"),
        ],
    )
    def test_options(self, asked, options, words):
        with pytest.raises(DataError, match=words):
            asked(pictures(2), **options)

    def test_without_labels(self, asked, classifier):
        asking = asked(pictures(2))
        with pytest.raises(ModelError, match="has no labels"):
            Grounding(replace(classifier, labels=None), asking.dataset, ["mwp"], proposals=asking.work.proposals)


def _found(records, method):
    phrases = [phrase for record in records for phrase in record["phrases"]]
    return [one for phrase in phrases for one in phrase["found"] if one["method"] == method]


@pytest.fixture
def grounded(asked, tmp_path):
    """Makes the results of some images by three methods."""
    methods = ["mwp", "c-mwp", "center"]
    return lambda count=4, **options: measured(asked(pictures(count), methods, **options), tmp_path / "out")[2]


def cases(records, methods, truth, each):
    rows = [SimpleNamespace(method=method, chosen=SimpleNamespace(gamma=0.5)) for method in methods]
    run = SimpleNamespace(records=records, about={"protocol": {"truth": truth}})
    return best_of_each_kind(*PhraseCases().candidates(run, rows), PhraseCases.kinds, each)


def test_tables_and_examples_of_a_page(grounded, tmp_path):
    run = grounded()
    page = Page(GroundingReport([run]).write_page(tmp_path).read_text())
    scores, leads, _, groups, *_ = page.tables
    names = ["the proposals' own scores", "mwp", "c-mwp", "center"]
    assert [row[0] for row in scores[2:]] == [row[0] for row in groups[1:]] == names
    assert groups[0] == ["method", "warm", "cold", "mean"]
    assert [row[0] for row in leads] == ["c-mwp over", "mwp", "center", names[0]]
    assert leads[3][1].startswith(f"{run.leads[2].r1.value:+.1f}")
    assert page.source.count("<img ") == sum(map(len, cases(run.records, ["c-mwp", "mwp"], "union", 3).values()))


def test_two_networks_a_given_gamma_and_pictures_that_vanished(grounded, tmp_path):
    run = grounded(2, gamma=0.9)
    assert any(cases(run.records, ["c-mwp", "mwp"], "union", 3).values())  # there is something to show
    twin = replace(run, classifier_name="twin", rows=[replace(row, model="twin") for row in run.rows])
    for path in (tmp_path / "said").glob("*.png"):
        path.unlink()
    text = GroundingReport([run, twin]).write_page(tmp_path).read_text()
    page = Page(text)
    assert "0.9 for all, so that all images are reported on" in page.text
    assert "by gamma" not in text
    assert page.tables[0][1][:3] == ["method", "network", "gamma"]
    assert [row[1] for row in page.tables[0][2:]] == ["\N{EN DASH}", *["colours"] * 3, *["twin"] * 3]
    assert "cannot be shown (" in page.text
    assert "<img " not in text


@pytest.mark.parametrize(("gamma", "told"), [(1, "1 for all"), ((0.25, 0.5), "the best of 0.25, 0.5 on 1 held-out")])
def test_gammas_of_ones_own(grounded, tmp_path, gamma, told):
    assert told in Page(GroundingReport([grounded(3, gamma=gamma)]).write_page(tmp_path).read_text()).text


def test_examples_of_each_kind():
    def found(method, hit, pointed):
        return {"method": method, "hits": {"union": hit, "any": hit}, "pointed": {"union": pointed, "any": pointed}}

    def phrase(text, main, other):
        return {"text": text, "boxes": [[0, 0, 5, 5]], "known": True, "found": [found("a", *main), found("b", *other)]}

    told = [
        ("alone", (1, True), (4, True)),
        ("both", (1, True), (1, True)),
        ("near", (None, True), (1, True)),
        ("far", (11, False), (1, True)),
        ("late", (7, False), (1, True)),
    ]
    records = [{"image": text, "size": [10, 10], "phrases": [phrase(text, *both)]} for text, *both in told]
    chosen = cases(records, ["a", "b"], "union", each=1)
    assert [[example.image for example in each] for each in chosen.values()] == [["alone"], ["both"], ["near"], ["far"]]

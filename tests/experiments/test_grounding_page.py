"""The page of grounding's results."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from annotated import SIDE
from described import Said, around, pictures, write_proposals
from pages import Page

from excite.experiments.grounding.report import GroundingReport, PhraseCases
from excite.experiments.grounding.run import Grounding
from excite.experiments.report.examples import best_of_each_kind

CASES = PhraseCases()


def choose(records, methods, truth, each):
    rows = [SimpleNamespace(method=method, chosen=SimpleNamespace(gamma=0.5)) for method in methods]
    run = SimpleNamespace(records=records, about={"protocol": {"truth": truth}})
    return best_of_each_kind(*CASES.candidates(run, rows), CASES.kinds, each)


@pytest.fixture
def make_run(classifier, tmp_path):
    def make(count=4, **options):
        described = pictures(count)
        boxes = {name: around(squares) for name, (squares, _) in described.items()}
        path = write_proposals(tmp_path / "boxes.json", boxes)
        dataset = Said(tmp_path / "said", described, ("warm", "cold"))
        asking = Grounding(classifier, dataset, ["mwp", "c-mwp", "center"], proposals=str(path), side=SIDE, **options)
        chosen = asking.choose(list(asking.choosing(tmp_path / "out")))
        return asking.run(chosen, list(asking.records(tmp_path / "out", chosen)))

    return make


def test_sections_tables_and_examples(make_run, tmp_path):
    run = make_run()
    text = GroundingReport([run]).write_page(tmp_path, "excite bench grounding --data said").read_text()
    page = Page(text)
    headings = [
        "What was measured",
        "Recall",
        "Small instances",
        "How many boxes, and which gamma",
        "Groups",
        "The paper's tables",
        "Examples",
        *(kind.format(main="c-mwp") for kind in CASES.kinds),
        "How to read it",
    ]
    assert page.headings == headings
    marks, leads, small, groups, ranks, recalls = page.tables
    names = ["the proposals' own scores", "mwp", "c-mwp", "center"]
    assert [row[0] for row in marks[2:]] == names
    assert [row[0] for row in groups] == ["method", *names]
    assert groups[0][1:] == ["warm", "cold", "mean"]
    first = next(row for row in run.rows if row.method == "mwp").all.recalls[1]
    assert marks[3][2].startswith(f"{first.value:.1f}")
    assert (len(small), len(ranks), len(recalls)) == (len(marks), 11, 10)
    assert "words skipped most: square (3)" in page.text
    assert leads[0] == ["c-mwp over", "all phrases", "small instances"]
    assert [row[0] for row in leads[1:]] == ["mwp", "center", "the proposals' own scores"]
    assert leads[3][1].startswith(f"{run.leads[2].r1.value:+.1f}")
    assert "excite bench grounding --data said" in page.text
    assert text.count("<img ") == sum(map(len, choose(run.records, ["c-mwp", "mwp"], "union", 3).values()))
    assert not re.search(r'(?:src|href)="(?!data:|#)', text)  # it fetches nothing


def test_two_networks_a_given_gamma_and_pictures_that_vanished(make_run, tmp_path):
    run = make_run(2, gamma=0.9)
    assert any(choose(run.records, ["c-mwp", "mwp"], "union", 3).values())  # there is something to show
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
def test_gammas_of_ones_own(make_run, tmp_path, gamma, told):
    assert told in Page(GroundingReport([make_run(3, gamma=gamma)]).write_page(tmp_path).read_text()).text


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
    chosen = choose(records, ["a", "b"], "union", each=1)
    assert [[example.image for example in each] for each in chosen.values()] == [["alone"], ["both"], ["near"], ["far"]]

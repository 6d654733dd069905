"""The recipes behind the paper's tables: their steps can be run, and what is made of the results is right."""

import json

import pytest
import typer
from annotated import colour_classifier

from excite.cli.app import app
from excite.errors import DataError
from excite.experiments import reproduction
from excite.experiments.published import CONTRAST, LOCALIZATION
from excite.experiments.reproduction import (
    CLAIM,
    KINDS,
    Recipe,
    Reproduction,
    all_recipes,
    claim_lines,
    find_recipes,
    verdict,
)
from excite.methods import METHODS

RECIPES = all_recipes()


@pytest.fixture
def work(tmp_path):
    """With folders for all data, which are empty."""
    for folder in ("VOCdevkit/VOC2007", "coco/annotations", "imagenet"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "coco/annotations/labels_train2017.jsonl").write_text("")
    return Reproduction(tmp_path, tmp_path / "out", weights="my weights.caffemodel", workers=2)


def parsed(arguments):
    """The options that a command line of excite means; typer refuses what is wrong."""
    command, name, rest = typer.main.get_command(app), "excite", arguments
    while hasattr(command, "commands"):
        name, command, rest = command.resolve_command(command.make_context(name, [*rest]), rest)
    return command.make_context(name, rest).params


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=list(RECIPES))
def test_steps_are_commands_whose_results_are_shown(work, recipe):
    methods = {}
    for arguments in work.commands([recipe]):
        assert not any("{" in word for word in arguments)
        params = parsed(arguments)
        methods[params["out"].name] = {*params.get("methods", "mwp").split(",")}
        assert methods[params["out"].name] <= METHODS.keys()
    for table in recipe.tables:
        assert table["kind"] in KINDS
        for claim in table.get("claims", ()):
            _, one, _, others = CLAIM.fullmatch(claim).groups()
            assert {one, *others.split()} <= methods[table["results"]]
    assert recipe.tables or recipe.figures or recipe.name == "speed"  # whose step draws the figure itself


def test_steps_are_filled(work, tmp_path):
    layer, *_ = work.commands(find_recipes("table1", "googlenet"))
    data, out = str(tmp_path / "VOCdevkit/VOC2007"), str(tmp_path / "out/voc-googlenet")
    network = ["--model", "googlenet", "--weights", "my weights.caffemodel"]
    assert layer == ["finetune", "--data", data, "--split", "train", *network, "--workers", "2", "--out", out]
    both = work.commands(find_recipes("all", "googlenet"))
    assert len(both) == len({tuple(each) for each in both})  # a step that several share is run once
    other = Reproduction(tmp_path, tmp_path, "torchvision:resnet50")
    assert str(tmp_path / "voc-torchvision-resnet50") in other.commands(find_recipes("table2", other.model))[0]


def test_coco_beside_the_data(work, tmp_path):
    train = tmp_path / "elsewhere"
    (train / "annotations").mkdir(parents=True)
    (train / "annotations/captions_train2017.json").write_text("")
    elsewhere = Reproduction(tmp_path, tmp_path, coco_train=train)
    corpus, _, tags, phrases = elsewhere.commands(find_recipes("table4", "googlenet"))
    assert corpus[:3] == ["tags", "captions", str(train / "annotations/captions_train2017.json")]
    assert str(train / "train2017") in tags
    assert str(tmp_path / "coco") in phrases


def test_refusals(work, tmp_path):
    with pytest.raises(DataError, match="no recipe 'table9': use all, augmented, examples"):
        find_recipes("table9", "googlenet")
    with pytest.raises(DataError, match="layers reads layers of googlenet, which vgg16 does not have"):
        find_recipes("layers", "vgg16")
    assert {"layers", "examples"} == {*RECIPES} - {one.name for one in find_recipes("all", "vgg16")}
    (tmp_path / "imagenet").rmdir()
    with pytest.raises(DataError, match=r"there is no \S*imagenet: see docs/reproduction.md"):
        work.commands(find_recipes("table3", "googlenet"))
    assert work.commands(find_recipes("table2", "googlenet"))


def point(method, every, hard, **more):
    return {"method": method, "layer": "pool2", "all": every, "difficult": hard, "empty": 0, "pairs": 9, **more}


def test_points_beside_the_paper(work):
    kind = KINDS["voc"]
    rows = [point("center", 66.0, 37.0), point("mwp", 77.0, 55.5), point("excite", 90.0, None)]
    center, mwp, excite = kind.lines(rows, kind.published("googlenet"))
    assert (center["paper"], center["here"], center["over Center, here"]) == (
        "69.5 / 42.6",
        "66.0 / 37.0",
        "+0.0 / +0.0",
    )
    assert (mwp["over Center, paper"], mwp["over Center, here"]) == ("+9.8 / +17.8", "+11.0 / +18.5")
    assert (excite["method"], excite["paper"], excite["here"]) == ("excite", "-", "90.0")
    assert excite["over MWP, here"] == "+13.0"
    assert kind.published("cnn-s")["c-mwp"] == {"all": 78.7, "difficult": 61.7}
    assert KINDS["coco"].published("vgg16")["c-mwp"] == {"all": 49.6, "difficult": 44.2}
    assert kind.published("resnet50") == {}
    assert "cam" not in kind.published("vgg16")


def test_the_contrast_beside_the_paper():
    rows = [point("c-mwp", 83.0, 68.4), point("guided", 70.0, 44.8), point("c-guided", 75.0, 60.7)]
    rows.append(point("c-grad", 0.0, 0.0, empty=9))
    kind = KINDS["contrast"]
    lines = {line["variant"]: line["here"] for line in kind.lines(rows, kind.published("googlenet"))}
    assert lines == {"c-mwp": "68.4", "c-grad": "zero everywhere", "c-guided": "60.7 (44.8)"}
    assert kind.published("googlenet")["c-guided"] == {"difficult": float(CONTRAST["c-guided"].split()[0])}
    assert kind.published("vgg16") == {}


def test_boxes_layers_and_phrases_beside_the_paper():
    kind = KINDS["boxes"]
    row = {"method": "mwp", "alpha": 1.5, "error": 40.0, "error_interval": [36.7, 43.4]}
    (line,) = kind.lines([row], kind.published("googlenet"))
    assert line["error, paper"] == str(LOCALIZATION["mwp"].error)
    assert (line["error, here"], line["alpha, paper"], line["alpha, here"]) == ("40.0 (36.7 to 43.4)", "1.5", "1.5")
    rows = [point("c-mwp", 80.0, 70.0), point("grad", 60.0, 50.0), point("grad", 5.0, 4.0, layer="pool5")]
    assert KINDS["layers"].lines(rows, {}) == [
        {"layer": "pool2", "c-MWP": "80.0 / 70.0", "Grad": "60.0 / 50.0"},
        {"layer": "pool5", "Grad": "5.0 / 4.0"},
    ]
    measures = {
        f"{name}{small}": 10.0 for name in ("r1", "r5", "r10", "map_group", "map_phrase") for small in ("", "_small")
    }
    paper, here = KINDS["phrases"].lines([{"method": "c-mwp", "gamma": 0.25, **measures}], {})
    assert (paper["where"], paper["gamma"], paper["R@1"]) == ("paper", "0.5", "26.2 / 21.2")
    assert (here["where"], here["gamma"], here["mAP phrase"]) == ("here", "0.25", "10.0 / 10.0")


def test_claims_are_judged_in_either_direction(tmp_path):
    lines = "a,b,4.0,1.0,7.0\nc,a,2.0,-1.0,5.0\nd,a,3.0,1.0,5.0\n"
    (tmp_path / "differences.csv").write_text(f"method,other,all,all_low,all_high\n{lines}")
    paper = {"a": {"all": 50.0}, "b": {"all": 40.0}}
    one, two, three = claim_lines("all: a > b c d e", paper, tmp_path)  # nothing is known of e
    assert (one["paper"], one["here"], one["verdict"]) == ("+10.0", "+4.0 (+1.0 to +7.0)", "holds")
    assert (two["paper"], two["here"], two["verdict"]) == ("-", "-2.0 (-5.0 to +1.0)", "not established")
    assert (three["here"], three["verdict"]) == ("-3.0 (-5.0 to -1.0)", "reversed")
    (less,) = claim_lines("all: a < d", paper, tmp_path)
    assert (less["claim"], less["verdict"]) == ("a < d", "holds")
    assert verdict(0.0, 1.0, ">") == "not established"
    with pytest.raises(ValueError, match="MEASURE: METHOD > METHODS"):
        list(claim_lines("a beats b", paper, tmp_path))


def test_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(reproduction, "load", lambda *_, **__: colour_classifier())
    figure = {
        "name": "drawn",
        "photographs": [["coffee.png", "red", "green"]],
        "methods": ["mwp", "c-mwp"],
        "layers": ["1"],
    }
    work = Reproduction(tmp_path, tmp_path / "out")
    answer = work.answer(Recipe("some", "Some", figures=[figure]))
    assert [path.name for path in answer.figures] == ["drawn.jpg"]
    written = answer.write(tmp_path / "out")
    assert "![drawn](drawn.jpg)" in written[0].read_text()
    assert json.loads(written[1].read_text())["figures"] == ["drawn.jpg"]
    monkeypatch.setattr(reproduction, "free_photographs", dict)
    with pytest.raises(DataError, match=r"excite\[demo\]"):
        work.answer(Recipe("some", "Some", figures=[figure]))

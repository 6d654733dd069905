"""Which examples are chosen, and what is drawn."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from excite.attention import AttentionMap
from excite.datasets import Instance, Mask, Target
from excite.experiments.pointing.report import PointingCases
from excite.experiments.pointing.scores import PointingRun
from excite.experiments.report.examples import Example, best_of_each_kind
from excite.readouts.overlay import DARK, LIGHT

CASES = PointingCases(lambda far: far is not None and far <= 15)
ALL, ONLY, MISSES = CASES.kinds
MAIN, OTHER, CENTER, BLIND = ("c-mwp", "1"), ("mwp", "1"), ("center", "1"), ("c-grad", "1")


def found(place, far):
    return {"method": place[0], "layer": place[1], "point": None if far is None else [1, 1], "distance": far}


def pair(image, far, other=0.0, *, category="cat", share=0.1, size=(100, 75)):
    maps = [found(MAIN, far), found(OTHER, other), found(CENTER, 70.0), found(BLIND, None), found(("mwp", "2"), 50.0)]
    return {"image": image, "size": list(size), "targets": [{"category": category, "share": share, "maps": maps}]}


def chosen(records, each=2, places=(MAIN, OTHER, CENTER, BLIND)):
    rows = [SimpleNamespace(method=method, layer=layer) for method, layer in places]
    answer = best_of_each_kind(*CASES.candidates(SimpleNamespace(records=records), rows), CASES.kinds, each)
    return {kind: [example.image for example in examples] for kind, examples in answer.items()}


def test_small_objects_that_all_hit():
    """The centre and a method that never points anywhere do not count, nor does a layer that is not shown."""
    records = [pair("large", 0.0, share=0.2), pair("small", 15.0, share=0.01), pair("huge", 0.0, share=0.5)]
    assert chosen(records)[ALL] == ["small", "large"]


def test_hits_where_others_miss():
    records = [
        pair("a", 0.0, 16.0, share=0.2),
        pair("b", 0.0, 99.0, share=0.1),
        pair("c", 0.0, 0.0),
        pair("d", 20.0, 99.0),
    ]
    assert chosen(records)[ONLY] == ["b", "a"]


def test_the_more_others_miss_the_better_whatever_the_size():
    records = [pair("one misses", 0.0, 0.0, share=0.01), pair("both miss", 0.0, 99.0, share=0.9)]
    assert chosen(records, places=(MAIN, OTHER, ("mwp", "2")))[ONLY] == ["both miss", "one misses"]


def test_the_farthest_misses_in_diagonals():
    records = [pair("near", 20.0), pair("far", 60.0), pair("nowhere", None), pair("wide", 61.0, size=(1000, 750))]
    assert chosen(records, each=4)[MISSES] == ["far", "near", "wide", "nowhere"]


def test_a_picture_once_and_categories_in_turns():
    records = [pair("1", 90.0), pair("2", 80.0), pair("3", 70.0, category="dog")]
    records[0]["targets"] += pair("1", 95.0, category="cow")["targets"]
    assert chosen(records, each=3)[MISSES] == ["1", "3", "2"]
    assert chosen(records, each=2)[MISSES] == ["1", "3"]


def test_a_picture_shows_one_kind_only():
    record = pair("1", 0.0)
    record["targets"] += pair("1", 0.0, 99.0, category="dog")["targets"]
    assert chosen([record]) == {ALL: ["1"], ONLY: [], MISSES: []}


def test_one_method_alone():
    assert chosen([pair("1", 0.0), pair("2", 50.0)], places=[MAIN]) == {ALL: ["1"], ONLY: [], MISSES: ["2"]}


def test_equals_keep_their_order_and_nothing_gives_nothing():
    records = [pair(name, 50.0) for name in "cab"]
    assert chosen(records, each=2)[MISSES] == ["c", "a"]
    assert chosen([]) == {ALL: [], ONLY: [], MISSES: []}


SIZE = (400, 300)
SQUARE = [[100, 100, 200, 100, 200, 200, 100, 200]]


def drawn(*instances):
    picture = Image.new("RGB", SIZE, (200, 30, 30))
    values = torch.zeros(3, 4)
    values[0, 0] = 1.0

    def show(*_):
        return [AttentionMap(values, "cat", layer, "c-mwp", 1.0, SIZE, image=picture) for layer in ("0", "1")]

    run = PointingRun("net", [], [], "voc", "val", {}, show, lambda *_: Target("cat", instances))
    example = Example("1", SIZE, "cat", 0.1, ({**found(MAIN, 0.0), "point": [350, 250]},))
    return [panel.image for panel in CASES.panels(run, example)]


@pytest.mark.parametrize(
    "instance",
    [Instance((100, 100, 200, 200)), Instance((0, 0, 400, 300), mask=Mask(json.dumps(SQUARE)))],
    ids=["box", "mask"],
)
def test_objects_are_outlined_by_light_between_dark(instance):
    if instance.mask is not None:
        pytest.importorskip("pycocotools")
    pictures = drawn(instance)
    for picture in pictures:
        row = np.asarray(picture)[150, 90:120]
        light = np.flatnonzero((row == LIGHT).all(axis=1))
        dark = np.flatnonzero((row == DARK).all(axis=1))
        assert light[0] == 10  # the object's own first pixel
        assert dark[0] < light[0] < light[-1] < dark[-1]
    assert pictures[0].getpixel((150, 150)) == (200, 30, 30)


def test_an_object_at_the_edges_is_outlined_too():
    picture, _ = drawn(Instance((-5, 0, 400, 300)))
    assert [picture.getpixel(corner) for corner in ((0, 0), (399, 0), (0, 299), (399, 299), (200, 0))] == [LIGHT] * 5


def test_the_point_is_the_recorded_one_and_the_map_is_under_it():
    _, panel = drawn(Instance((10, 10, 20, 20)))
    assert panel.getpixel((350, 250)) == LIGHT
    strongest, nothing = panel.getpixel((40, 40)), panel.getpixel((200, 150))
    assert strongest[1] > nothing[1] + 50

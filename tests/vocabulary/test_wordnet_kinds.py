"""Kinds of ImageNet's classes, by WordNet and by hand, and the scripts that make the tables."""

import importlib.util
import json
from pathlib import Path

import pytest

from excite.models.architectures import EVERYDAY_UNITS, embedded_labels
from excite.vocabulary import Labels, imagenet_labels
from excite.vocabulary.imagenet import EVERYDAY_WORDS, imagenet_groups, imagenet_others, spread
from excite.vocabulary.labels import rows

DEV = Path(__file__).parents[2] / "dev"


def recipe(name):
    spec = importlib.util.spec_from_file_location(name, DEV / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def names(word, labels=None):
    labels = labels or imagenet_labels()
    return {labels.name(unit) for unit in labels.word(word).units}


@pytest.mark.parametrize(
    ("word", "inside", "outside"),
    [
        ("dog", ["beagle", "Mexican hairless"], ["timber wolf", "dingo", "hotdog"]),
        ("vehicle", ["cab", "mountain bike", "airliner", "canoe"], ["parking meter", "traffic light"]),
        ("fruit", ["banana", "lemon"], ["acorn", "corn", "buckeye"]),
        ("plant", ["daisy", "pot"], ["lumbermill"]),
        ("clothing", ["jean", "cardigan", "apron"], ["book jacket", "bath towel"]),
        ("instrument", ["violin", "drum", "oboe"], ["revolver", "analog clock"]),
        ("cat", ["tabby"], ["tiger", "lynx"]),
        ("shirt", ["jersey"], ["suit"]),
        ("hat", ["cowboy hat", "sombrero"], ["crash helmet", "shower cap"]),
        ("glasses", ["sunglasses"], ["beer glass"]),
        ("glass", ["beer glass", "goblet"], ["sunglasses"]),
        ("food", ["pizza", "ice cream", "cheeseburger"], ["refrigerator"]),
        ("light", ["torch"], ["lighter"]),
    ],
)
def test_kinds_hold_what_people_mean(word, inside, outside):
    assert names(word) >= set(inside)
    assert not names(word) & set(outside)


def test_kinds_are_found_by_who_asks_too():
    labels = imagenet_labels()
    assert set(labels.find("vehicles").units) == set(labels.word("vehicle").units)
    assert labels.find("vertebrate").units == tuple(sorted(labels.find("vertebrate").units))
    assert len(labels.find("vertebrate").units) == 337
    assert embedded_labels("everyday").find("vertebrate").units == labels.find("vertebrate").units


def test_unknown_words():
    """Those that ImageNet knows nothing or little of, and those that mostly mean something else."""
    unknown = "person man entity object artifact paper stuff shape location front back top stand good hot ear head fly"
    assert [word for word in unknown.split() if imagenet_labels().word(word) is not None] == []


def test_our_own_words_are_needed():
    """Each of them is answered otherwise without them."""
    groups: dict[str, set[int]] = {}
    *kinds, (_, others) = rows("wordnet.txt")
    for _, words, spans in kinds:
        for word in words.lower().split(", "):
            groups.setdefault(word, set()).update(spread(spans))
    plain = Labels([words for _, *words in rows("imagenet.txt")], groups=groups, others=others.split(", "))
    for word, units in EVERYDAY_WORDS.items():
        said = plain.word(word)
        assert said is None or set(said.units) != set(units), word


def test_the_tables_are_in_order():
    groups, others = imagenet_groups(), imagenet_others()
    assert all(0 <= unit < 1000 for units in groups.values() for unit in units)
    assert all(0 < len(units) <= 500 for units in groups.values())
    assert not others & EVERYDAY_WORDS.keys()
    text = Path(__file__).parents[2] / "src" / "excite" / "vocabulary"
    for name in ("wordnet.txt", "persons.txt"):
        head = (text / name).read_text(encoding="utf-8")
        assert "WordNet 3.0 Copyright 2006 by Princeton University" in head
        assert "Title to copyright in this software, database and" in head


class TestCategoriesOfCoco:
    def test_words_of_captions(self):
        labels = embedded_labels("everyday")
        for word, category in (("man", "person"), ("kids", "person"), ("jet", "airplane"), ("fridges", "refrigerator")):
            assert labels.word(word) == labels.find(category)
            assert labels.word(word).units[0] in EVERYDAY_UNITS

    def test_any_classifier_of_such_names_profits(self):
        labels = Labels(["person", "car", "traffic light", "dog"])
        expected = {"person": "man kid umpire dude", "car": "taxi vans", "traffic light": "stoplight", "dog": "puppies"}
        for name, words in expected.items():
            assert {labels.word(word).name for word in words.split()} == {name}

    def test_a_label_of_its_own_comes_first(self):
        assert Labels(["person", "man"]).word("man").units == (1,)
        assert embedded_labels("everyday").word("beagle").name == "beagle"

    def test_the_category_joins_the_kind(self):
        labels = embedded_labels("everyday")
        assert {"laptop", "desktop computer"} <= names("computer", labels)
        assert set(labels.word("computer").units) & set(EVERYDAY_UNITS)
        assert names("duck") == {"drake", "red-breasted merganser"}  # ImageNet has ducks: not all birds
        assert len(names("turkey")) == 59  # but no turkey: some bird

    def test_the_table_is_made_of_the_list(self, shared_data):
        synonyms = json.loads((shared_data / "coco" / "annotations" / "synonyms.json").read_text(encoding="utf-8"))
        table = recipe("make_coco_words").table(synonyms)
        assert [[name, *words] for name, words in table.items()] == rows("coco.txt")
        assert len(table) == 80

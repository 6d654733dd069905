"""Kinds of ImageNet's classes, by WordNet and by hand, and the scripts that make the tables."""

import json
import runpy
from pathlib import Path

import pytest

from excite.models.architectures import EVERYDAY_UNITS, embedded_labels
from excite.vocabulary import Labels, imagenet_labels
from excite.vocabulary.imagenet import EVERYDAY_WORDS, imagenet_groups, imagenet_others
from excite.vocabulary.labels import rows

ROOT = Path(__file__).parents[2]


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


def test_kinds_are_found_by_a_query_too():
    labels = imagenet_labels()
    assert set(labels.find("vehicles").units) == set(labels.word("vehicle").units)
    assert len(labels.find("vertebrate").units) == 337
    assert embedded_labels("everyday").find("vertebrate").units == labels.find("vertebrate").units


def test_unknown_words():
    """Those that ImageNet knows nothing or little of, and those that mostly mean something else."""
    unknown = "person man entity object artifact paper stuff shape location front back top stand good hot ear head fly"
    assert [word for word in unknown.split() if imagenet_labels().word(word) is not None] == []


def test_the_tables_are_in_order():
    groups, others = imagenet_groups(), imagenet_others()
    assert all(0 <= unit < 1000 for units in groups.values() for unit in units)
    assert all(0 < len(units) <= 500 for units in groups.values())
    assert not others & EVERYDAY_WORDS.keys()
    for name in ("wordnet.txt", "persons.txt"):
        head = (ROOT / "src" / "excite" / "vocabulary" / name).read_text(encoding="utf-8")
        assert "WordNet 3.0 Copyright 2006 by Princeton University" in head


class TestCategoriesOfCoco:
    def test_words_of_captions(self):
        labels = embedded_labels("everyday")
        for word, category in (("kids", "person"), ("jet", "airplane"), ("fridges", "refrigerator")):
            assert labels.word(word) == labels.find(category)
            assert labels.word(word).units[0] in EVERYDAY_UNITS

    def test_any_classifier_of_such_names_profits(self):
        labels = Labels(["person", "car", "traffic light", "dog"])
        expected = {"person": "man kid umpire dude", "car": "taxi vans", "traffic light": "stoplight", "dog": "puppies"}
        for name, words in expected.items():
            assert {labels.word(word).name for word in words.split()} == {name}

    def test_the_category_joins_the_kind_and_person_a_label_of_its_own(self):
        assert Labels(["person", "man", "hat"]).word("man").units == (0, 1)
        labels = embedded_labels("everyday")
        assert labels.word("beagle").name == "beagle"
        assert {"laptop", "desktop computer"} <= names("computer", labels)
        assert set(labels.word("computer").units) & set(EVERYDAY_UNITS)
        assert names("duck") == {"drake", "red-breasted merganser"}  # ImageNet has ducks: not all birds
        assert len(names("turkey")) == 59  # but no turkey: some bird

    def test_the_table_is_made_of_the_list(self, shared_data):
        synonyms = json.loads((shared_data / "coco" / "annotations" / "synonyms.json").read_text(encoding="utf-8"))
        table = runpy.run_path(str(ROOT / "dev" / "make_coco_words.py"))["table"](synonyms)
        assert [[name, *words] for name, words in table.items()] == rows("coco.txt")
        assert len(table) == 80

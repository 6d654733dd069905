"""COCO's captions: their noun phrases, found by rules, as phrases for its instances."""

import json

import pytest
from annotated import SIDE, picture

from excite.datasets.base import Phrase
from excite.datasets.captions import CaptionPhrases, noun_phrases
from excite.errors import DataError
from excite.vocabulary.labels import coco_categories

CATEGORIES = [
    {"id": 1, "name": "person", "supercategory": "person"},
    {"id": 18, "name": "dog", "supercategory": "animal"},
    {"id": 3, "name": "car", "supercategory": "vehicle"},
    {"id": 90, "name": "Red Square"},
]
INSTANCES = [
    {"image_id": 7, "category_id": 18, "bbox": [1, 2, 10, 20]},
    {"image_id": 7, "category_id": 18, "bbox": [20, 2, 5.5, 5]},
    {"image_id": 7, "category_id": 1, "bbox": [0, 0, 40, 40], "iscrowd": 1},
    {"image_id": 7, "category_id": 90, "bbox": [3, 3, 4, 4]},
]
DOGS = ((1, 2, 11, 22), (20, 2, 25.5, 7))


def write(folder, captions, instances=INSTANCES, others=()):
    """One image, number 7; captions are texts about it, or whole entries. Others are further images."""
    image = {"id": 7, "file_name": "7.jpg", "width": SIDE, "height": SIDE}
    entries = [{"image_id": 7, "caption": one} if isinstance(one, str) else one for one in captions]
    (folder / "annotations").mkdir(exist_ok=True)
    content = {"images": [image, *others], "categories": CATEGORIES, "annotations": instances}
    (folder / "annotations/instances_val2017.json").write_text(json.dumps(content))
    (folder / "annotations/captions_val2017.json").write_text(json.dumps({"images": [image], "annotations": entries}))
    picture(folder / "val2017/7.jpg", [])
    return folder


def test_a_phrase_means_all_instances_of_its_category(tmp_path):
    caption = "Two dogs  sit beside a puppy ."
    dataset = CaptionPhrases(write(tmp_path, [caption, "A red square and a dog."]))
    (described,) = dataset
    told = "Two dogs sit beside a puppy ."
    assert described.phrases == (
        Phrase("Two dogs", DOGS, "animal", told),
        Phrase("a puppy", DOGS, "animal", told),
        Phrase("A red square", ((3, 3, 7, 7),), "", "A red square and a dog."),
        Phrase("a dog", DOGS, "animal", "A red square and a dog."),
    )
    assert (described.name, described.path, described.size) == ("7.jpg", tmp_path / "val2017/7.jpg", (SIDE, SIDE))


def test_what_cannot_be_used_is_counted(tmp_path):
    captions = [
        "A dog near a car, a man and the dog house.",
        "A view.",
        {"image_id": 7},
        {"image_id": 8, "caption": "Dogs"},
        {"image_id": 9, "caption": "A dog."},
    ]
    broken = {"image_id": 9, "category_id": 18, "bbox": None}
    instances = [*INSTANCES, {"image_id": 7, "category_id": 18, "bbox": [1, 2, 0, 20]}, broken]
    dataset = CaptionPhrases(write(tmp_path, captions, instances, [{"id": 9, "file_name": "9.jpg"}]))
    assert [phrase.text for described in dataset for phrase in described.phrases] == ["A dog"]
    assert dataset.left_out == {
        "captions without words or an image": 1,
        "crowd regions": 1,
        "boxes without an area": 1,
        "phrases whose category was not annotated in the image": 1,
        "phrases whose category was annotated as a crowd only": 1,
        "words for a category that seem to be part of another name": 1,
        "captions of images without instances": 1,
        "images whose annotations are broken": 1,
    }


def test_pictures_without_a_phrase_or_a_file(tmp_path):
    with pytest.raises(DataError, match=r"has no phrases \(crowd regions: 1; images without a phrase: 1\)"):
        CaptionPhrases(write(tmp_path, ["A view of the sea."]))
    (tmp_path / "val2017/7.jpg").unlink()
    with pytest.raises(DataError, match=r"\(images that are missing: 1\)"):
        CaptionPhrases(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", '{"annotations": 1}', "9" * 5000])
def test_broken_captions(tmp_path, content):
    write(tmp_path, ["A dog."])
    (tmp_path / "annotations/captions_val2017.json").write_text(content)
    with pytest.raises(DataError, match=r"captions_val2017\.json: (broken JSON|it has no list 'annotations')"):
        CaptionPhrases(tmp_path)


def test_captions_need_instances_of_the_same_pictures(tmp_path):
    write(tmp_path, ["A dog."])
    assert CaptionPhrases.is_in(tmp_path)
    (tmp_path / "annotations/captions_val2017.json").rename(tmp_path / "annotations/captions_train2017.json")
    assert not CaptionPhrases.is_in(tmp_path)


def test_real_captions(shared_data):
    dataset = CaptionPhrases(shared_data / "coco")
    phrases = [phrase for described in dataset for phrase in described.phrases]
    assert len(phrases) > 850
    assert {phrase.group for phrase in phrases} == set(dataset.groups)
    assert all(phrase.text in phrase.sentence for phrase in phrases)
    texts = {phrase.text for phrase in phrases}
    assert {"A blue and white train", "a bunch of bananas", "a brown teddy bear", "her umbrella"} <= texts


def found(caption):
    return {phrase.text: phrase.meaning for phrase in noun_phrases(caption, coco_categories()) if phrase.meaning}


@pytest.mark.parametrize(
    ("caption", "phrases"),
    [
        ("A man in a red shirt riding a wave on a surfboard", ["A man", "a surfboard"]),
        ("two dogs", ["two dogs"]),
        ("A child hugs a large brown teddy bear.", ["A child", "a large brown teddy bear"]),
        ("A bunch of bananas on the table", ["A bunch of bananas", "the table"]),
        ("A very large group of people and a bowl of oranges", ["A very large group of people", "a bowl", "oranges"]),
        ("A parking lot of cars", ["cars"]),
        ("a black and white cat, sleeping", ["a black and white cat"]),
        ("A little girl with a big, blue umbrella", ["A little girl", "a big, blue umbrella"]),
        ("an orange and white cat near an orange", ["an orange and white cat", "an orange"]),
        ("a man holding oranges", ["a man", "oranges"]),
        ("a sleeping cat and three parked cars", ["a sleeping cat", "three parked cars"]),
        ("A middle aged woman", ["A middle aged woman"]),
        ("People sit at a table", ["People", "a table"]),
        ("2 zebras standing", ["2 zebras"]),
        ("a man\N{RIGHT SINGLE QUOTATION MARK}s tie", ["a man\N{RIGHT SINGLE QUOTATION MARK}s tie"]),
        ("A DOG BARKS. THE CAT", ["THE CAT"]),
        ("There are all of the two birds", ["the two birds"]),
        ("a race car", ["a race car"]),
        ("", []),
        ("!?", []),
    ],
)
def test_what_is_found(caption, phrases):
    assert list(found(caption)) == phrases


NO_PHRASES = """the car door; a bus stop near a train station; the clock tower; a ski slope; a cake stand; an oven mitt;
a bear shaped balloon; a horse drawn carriage; a parking garage for a bicycle shop; a pizza box and a table cloth;
a statue of a horse; a toy car and a stuffed dog; wearing orange and black; the toilet bowl; the mp3 player;
about to bear; playing frisbee; the man's hand; a car-park"""


@pytest.mark.parametrize("caption", [one.strip() for one in NO_PHRASES.split(";")])
def test_what_is_none(caption):
    assert found(caption) == {}


@pytest.mark.parametrize("before", ["black and ", "group of ", "a "])
def test_endless_captions(before):
    (phrase,) = noun_phrases(f"{before * 3000}black cats", coco_categories())
    assert len(phrase.text) > len(before) * 2900


def test_plurals_that_are_no_plain_ones():
    meanings = [found(caption).popitem()[1] for caption in ("men", "children", "mice", "knives", "skis", "scissors")]
    assert meanings == ["person", "person", "mouse", "knife", "skis", "scissors"]

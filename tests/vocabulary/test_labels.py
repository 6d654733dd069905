import json
import re

import numpy as np
import pytest

from excite.errors import ConceptError
from excite.vocabulary import Concept, Labels, imagenet_labels, imagenet_wnids
from excite.vocabulary.imagenet import EVERYDAY_WORDS

NAMES = "tabby,tabby cat;Persian cat;crane;crane;missile;projectile,missile;cougar,panther;jaguar,panther"
ANIMALS = Labels([words.split(",") for words in f"{NAMES};mailbox,letter-box".split(";")])


def units(query, labels=ANIMALS):
    return labels.find(query).units


def message(query, labels=ANIMALS):
    with pytest.raises(ConceptError) as caught:
        labels.find(query)
    return str(caught.value)


def test_labels_are_a_sequence_of_names_with_synonyms():
    assert len(ANIMALS) == 9
    assert list(ANIMALS)[:3] == ["tabby", "Persian cat", "crane"]
    assert ANIMALS.name(0) == "tabby"
    assert ANIMALS.synonyms(0) == ("tabby", "tabby cat")
    assert Labels(["a", "b"]) == Labels([["a"], ("b",)])
    assert hash(Labels(["a"])) == hash(Labels([["a"]]))
    assert Labels(["a"]) != Labels(["b"]) != "b"
    assert repr(Labels("abcd".split())) == "Labels(1: 'abcd')"
    assert ANIMALS.begin_with(Labels([["tabby", "tabby cat"], "Persian cat"]))
    assert not ANIMALS.begin_with(Labels(["tabby", "Persian cat"]))
    assert not Labels(["tabby"]).begin_with(ANIMALS)


@pytest.mark.parametrize("entries", [[], "cat", [""], [[]], [["cat", " "]], ["cat", 3], [[3]]])
def test_labels_without_words_are_refused(entries):
    with pytest.raises(ConceptError):
        Labels(entries)


@pytest.mark.parametrize(
    "query", [1, "1", " 1 ", np.int64(1), "persian CAT", "Persian_cat", " persian-cat ", "Persian  cat"]
)
def test_an_index_and_every_spelling_find_the_label(query):
    assert ANIMALS.find(query) == Concept("Persian cat", (1,))


@pytest.mark.parametrize(
    ("labels", "queries", "words"),
    [
        (ANIMALS, [-1, 9, "9", "1000", "9" * 30], "0 to 8"),
        (ANIMALS, ["-1", "- 1", "--1", " -1 ", "_-1", "-0", "-123456789012345678901"], "There is no output unit -"),
        (Labels.numbered(5), ["-1", "- 1", "--1", " -1 ", "_-1", "-0"], "There is no output unit -"),
        (ANIMALS, ["_1", "1-", "1_", "+1", "1.0", "ox"], "No label is called"),  # not only digits, no whole word
        (ANIMALS, ["", "  ", "_-"], "excite ls labels"),
        (ANIMALS, [2.5], "2.5 is no concept"),
        (ANIMALS, [Concept("mine", (0, 9))], "no output unit 9"),
    ],
)
def test_what_is_refused(labels, queries, words):
    for query in queries:
        assert words in message(query, labels)


SIGNED = Labels(["-1", "0", "1", "minus-1 degree"])
YEARS = Labels(["2019", "2020", "1"])
GROUPED = Labels(["beagle", "pug", "hot dog", "sofa"], groups={"Dog": [0, 1], "beagle": [1], "couch": (3,)})


@pytest.mark.parametrize(
    ("labels", "query", "expected"),
    [
        *((SIGNED, query, (unit,)) for unit, query in enumerate(["-1", "0", "1", "MINUS 1-degree"])),
        *[(YEARS, "2020", (1,)), (YEARS, "1", (2,)), (YEARS, "0", (0,)), (YEARS, 1, (1,))],  # a label beats an index
        (ANIMALS, "Crane", (2, 3)),  # the name of two
        (ANIMALS, "missile", (4,)),  # the name of one, a later synonym of another
        (ANIMALS, "panther", (6, 7)),  # a later synonym of two
        *[(ANIMALS, "cat", (0, 1)), (ANIMALS, "box", (8,))],  # a last word is a kind
        *[(ANIMALS, "Cats", (0, 1)), (ANIMALS, "letter boxes", (8,)), (ANIMALS, "tabbies", (0,))],
        (Labels(["grey wolf", "dog"]), "wolves", (0,)),
        (Labels(["paper knife", "dog"]), "knives", (0,)),
        (Labels(["corgi", "cor"]), "corgis", (0,)),
        (Labels(["mouse"]), "mice", (0,)),
        (imagenet_labels(), "oranges", (950,)),  # no orang-utan
        *[(GROUPED, "dogs", (0, 1)), (GROUPED, "beagle", (0,)), (GROUPED, "couch", (3,))],  # after names
    ],
)
def test_what_a_word_means(labels, query, expected):
    assert units(query, labels) == expected


def test_the_name_of_a_concept_and_a_beginning_of_one_label():
    assert ANIMALS.find("box") == Concept("mailbox", (8,))  # one unit is named after its label
    assert ANIMALS.find("Crane") == Concept("crane", (2, 3))
    assert ANIMALS.find("tab") == Concept("tabby", (0,))
    assert ANIMALS.find("panth") == Concept("panther", (6, 7))
    ambiguous = message("p")
    assert all(word in ambiguous for word in ("'persian cat'", "'projectile'", "'panther'"))
    assert ambiguous.count("panther") == 1
    assert "'thing h' and 4 more" in message("thi", Labels([f"thing {letter}" for letter in "abcdefghijkl"]))


def test_preferred_labels_have_their_words_to_themselves():
    entries = ["orange", "beagle", ["hotdog", "hot dog"], "orange", "dog", ["hot dog", "frank"], "cell phone"]
    labels = Labels(entries, groups={"dog": [1]}, preferred=range(3, 7))
    assert labels.find("orange") == Concept("orange", (3,))
    assert labels.find("dogs") == Concept("dog", (4,))
    assert units("hot dog", labels) == units("frank", labels) == (5,)
    assert units("hotdog", labels) == (2,)
    assert units(0, labels) == (0,)
    assert "No label" in message("phone", labels)  # they are whole words, not kinds
    assert units("cell", labels) == (6,)
    plain = Labels(entries, groups={"dog": [1]})
    assert units("orange", plain) == (0, 3)
    assert units("phone", plain) == (6,)
    assert plain != labels
    for wrong in ({"preferred": [7]}, {"groups": {"dog": [7]}}):
        with pytest.raises(ConceptError, match="no output unit 7"):
            Labels(entries, **wrong)


def test_a_concept_is_taken_as_it_is_if_its_units_exist():
    concept = Concept("mine", (0, 3))
    assert ANIMALS.find(concept) is concept
    assert Concept("mine", [np.int64(2)]) == Concept("mine", (2,))
    for wrong in ((), (1, 1)):
        with pytest.raises(ConceptError, match="at least one, each only once"):
            Concept("mine", wrong)


@pytest.mark.parametrize(
    ("typo", "meant"), [("taby cat", "tabby cat"), ("retreiver", "retriever"), ("rotweiler", "rottweiler")]
)
def test_a_typo_is_answered_with_words_that_can_be_typed(typo, meant):
    told = message(typo, imagenet_labels())
    assert f"'{meant}'" in told
    assert "excite ls labels" in told
    assert all(units(word, imagenet_labels()) for word in re.findall(r"'([^']+)'", told.split("mean")[1]))


def test_search_is_for_any_part_of_any_synonym():
    found = [ANIMALS.search(text) for text in ("CAT", "letter_b", "unicorn", "")]
    assert found == [[0, 1], [8], [], list(range(9))]


def test_imagenet_labels_are_the_official_mapping(shared_data):
    mapping = (shared_data / "imagenet" / "LOC_synset_mapping.txt").read_text().splitlines()
    labels = imagenet_labels()
    assert len(labels) == len(mapping) == 1000
    for unit, line in enumerate(mapping):
        assert line == f"{imagenet_wnids()[unit]} {', '.join(labels.synonyms(unit))}"
    assert [units(word, labels) for word in ("crane", "maillot", "missile")] == [(134, 517), (638, 639), (657,)]


def test_no_everyday_word_is_hidden_by_a_label():
    assert [word for word, members in EVERYDAY_WORDS.items() if units(word, imagenet_labels()) != members] == []


# Labels from files: as people and other programs write them.

WORDS = Labels([["cat", "puss"], ["dog"], ["great white shark"]])
TEXT = "cat, puss\ndog\ngreat white shark\n"


@pytest.fixture
def read(tmp_path):
    def from_content(content, name="labels.txt"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return Labels.read(path)

    return from_content


@pytest.mark.parametrize(
    "content",
    [
        TEXT,
        TEXT + "\n\n  \n",
        TEXT.replace("\n", "\r\n"),
        b"\xef\xbb\xbf" + TEXT.encode(),
        "  cat ,puss  \n\tdog\ngreat white shark",
        "n02121808 cat, puss\nn02084071 dog\nn01484850 great white shark\n",
        json.dumps([["cat", "puss"], "dog", "great white shark"]),
        "\n" + json.dumps([["cat", "puss"], ["dog"], "great white shark"], indent=1),
    ],
    ids="text|blank end|crlf|bom|spaces|synsets|json|indented json".split("|"),
)
def test_the_same_words_in_many_spellings(read, content):
    labels = read(content)
    assert labels == WORDS
    assert labels.find("puss").units == (0,)
    assert labels.find("shark").name == "great white shark"


def test_other_alphabets_and_what_looks_like_a_number_of_wordnet(read):
    assert list(read("Kätzchen, Katze\n犬\n")) == ["Kätzchen", "犬"]
    assert list(read('["K\\u00e4tzchen", "犬"]')) == ["Kätzchen", "犬"]
    assert list(read("n02121808 cat\ndog\n")) == ["n02121808 cat", "dog"]  # not all lines have one
    assert list(read("n02121808\nn02084071\n")) == ["n02121808", "n02084071"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "no labels"),
        ("[]", "no labels"),
        ("cat\n\ndog\n", "Label 1 is .* none of them blank"),
        ("cat, \ndog\n", "Label 0 is .* none of them blank"),
        ('["cat", 7]', "Label 1 is 7"),
        ('["cat", []]', "Label 1 is"),
        ('["cat", "dog"', "no JSON array of labels"),
        ("[" * 100_000, "no JSON array of labels"),
        ('{"0": ["n01440764", "tench"]}', r"no JSON array .* an object: write \[\.\.\.\]"),
        (TEXT.encode("utf-16-le"), "Cannot read the labels .* UTF-8"),
        ("Kätzchen\n".encode("latin-1"), "Cannot read the labels"),
        (b"\x00\x01\x02", "Cannot read the labels"),
    ],
)
def test_what_holds_no_labels(read, content, words):
    with pytest.raises(ConceptError, match=words) as caught:
        read(content)
    assert "\n" not in str(caught.value)


def test_no_file(tmp_path):
    for path in (tmp_path / "gone.txt", tmp_path):
        with pytest.raises(ConceptError, match=f"Cannot read the labels in '{path}'"):
            Labels.read(path)


def test_a_name_of_several_units_is_listed_once():
    """First the unit that the name means, here the preferred one; then those that only their numbers mean."""
    labels = Labels([["kite", "bird"], "Dog", "dog", ["kite", "toy"]], preferred=[3])
    assert labels.listed() == [(3, 0), (1, 2)]
    assert labels.listed("bird") == [(0,)]

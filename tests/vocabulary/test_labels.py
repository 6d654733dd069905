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
    assert Labels(["a"]) != Labels(["b"])


@pytest.mark.parametrize("entries", [[], "cat", [""], [[]], [["cat", " "]], ["cat", 3], [[3]]])
def test_labels_without_words_are_refused(entries):
    with pytest.raises(ConceptError):
        Labels(entries)


@pytest.mark.parametrize(
    "query", [1, "1", " 1 ", np.int64(1), "persian CAT", "Persian_cat", " persian-cat ", "Persian  cat"]
)
def test_an_index_and_every_spelling_find_the_label(query):
    assert ANIMALS.find(query) == Concept("Persian cat", (1,))


@pytest.mark.parametrize("query", [-1, 9, "9", "1000"])
def test_an_index_out_of_range_says_the_range(query):
    assert "0 to 8" in message(query)
    with pytest.raises(ConceptError, match="0 to 8"):
        ANIMALS.name(int(query))


@pytest.mark.parametrize("query", ["-1", "- 1", "--1", " -1 ", "_-1", "-0", "-123456789012345678901"])
@pytest.mark.parametrize("labels", [ANIMALS, Labels.numbered(5)], ids=["words", "numbers"])
def test_a_negative_index_is_refused(query, labels):
    assert "There is no output unit -" in message(query, labels)


@pytest.mark.parametrize("query", ["_1", "1-", "1_", "+1", "1.0"])
def test_what_is_not_only_digits_is_no_index(query):
    assert "No label is called" in message(query)


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
        *[
            (GROUPED, "dogs", (0, 1)),
            (GROUPED, "beagle", (0,)),
            (GROUPED, "couch", (3,)),
        ],  # after names
    ],
)
def test_what_a_word_means(labels, query, expected):
    assert units(query, labels) == expected


def test_the_name_of_a_concept():
    assert ANIMALS.find("Crane") == Concept("crane", (2, 3))
    assert ANIMALS.find("box") == Concept("mailbox", (8,))  # one unit is named after its label
    assert "No label" in message("ox")  # not a whole word
    with pytest.raises(ConceptError, match="0 to 0"):
        Labels(["beagle"], groups={"dog": [1]})


def test_a_beginning_must_be_of_one_label():
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
    with pytest.raises(ConceptError, match="no output unit 7"):
        Labels(entries, preferred=[7])


def test_labels_that_begin_with_others():
    assert ANIMALS.begin_with(Labels([["tabby", "tabby cat"], "Persian cat"]))
    assert ANIMALS.begin_with(ANIMALS)
    assert not ANIMALS.begin_with(Labels(["tabby", "Persian cat"]))
    assert not Labels(["tabby"]).begin_with(ANIMALS)


@pytest.mark.parametrize("query", ["", "  ", "_-"])
def test_a_blank_query_is_refused(query):
    assert "excite ls labels" in message(query)


def test_a_concept_is_taken_as_it_is_if_its_units_exist():
    assert "2.5 is no concept" in message(2.5)
    concept = Concept("mine", (0, 3))
    assert ANIMALS.find(concept) is concept
    assert "no output unit 9" in message(Concept("mine", (0, 9)))
    assert Concept("mine", [np.int64(2)]) == Concept("mine", (2,))
    for wrong in ((), (1, 1)):
        with pytest.raises(ConceptError, match="at least one, each only once"):
            Concept("mine", wrong)


@pytest.mark.parametrize(
    ("typo", "meant"), [("taby cat", "tabby cat"), ("retreiver", "retriever"), ("rotweiler", "rottweiler")]
)
def test_a_typo_is_answered_with_words_that_can_be_typed(typo, meant):
    labels = imagenet_labels()
    told = message(typo, labels)
    assert f"'{meant}'" in told
    assert "excite ls labels" in told
    for word in re.findall(r"'([^']+)'", told.split("mean")[1]):
        assert labels.find(word).units


def test_search_is_for_any_part_of_any_synonym():
    assert ANIMALS.search("CAT") == [0, 1]
    assert ANIMALS.search("letter_b") == [8]
    assert ANIMALS.search("unicorn") == []
    assert ANIMALS.search("") == list(range(9))


def test_imagenet_labels():
    labels = imagenet_labels()
    assert len(labels) == len(imagenet_wnids()) == len(set(imagenet_wnids())) == 1000
    assert labels is imagenet_labels()
    assert imagenet_wnids()[281] == "n02123045"
    assert [units(word, labels) for word in ("crane", "maillot", "missile")] == [(134, 517), (638, 639), (657,)]


def test_imagenet_labels_are_the_official_mapping(shared_data):
    mapping = (shared_data / "imagenet" / "LOC_synset_mapping.txt").read_text().splitlines()
    labels = imagenet_labels()
    for unit, line in enumerate(mapping):
        assert line == f"{imagenet_wnids()[unit]} {', '.join(labels.synonyms(unit))}"


def test_no_everyday_word_is_hidden_by_a_label():
    labels = imagenet_labels()
    for word, members in EVERYDAY_WORDS.items():
        assert units(word, labels) == members, word
        assert len(set(members)) == len(members)

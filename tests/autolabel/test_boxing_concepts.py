"""What is looked for, and what it is called."""

import pytest

from excite.autolabel import Question
from excite.autolabel.inputs import category, misread, understood
from excite.errors import ConceptError
from excite.vocabulary import Labels

LABELS = Labels([["dog", "domestic dog"], "cat", "Egyptian cat", "forklift", "caf\u00e9"])


def names(*words):
    return [(one.category, one.cue.name) for one in understood(words, LABELS)]


def test_called_as_the_user_does():
    assert names("Dogs", "egyptian_cat", " cat ", "cat") == [
        ("Dogs", "dog"),
        ("egyptian_cat", "Egyptian cat"),
        ("cat", "cat"),
    ]


def test_what_somebody_might_have_meant_otherwise():
    assert misread(understood(["Dogs", "egyptian_cat", "cat", "fork", "2"], LABELS)) == (
        "'Dogs' for 'dog', 'fork' for 'forklift', '2' for 'Egyptian cat'"
    )
    assert misread(understood(["cat"], LABELS)) == ""


def test_letters_and_their_accents_may_be_two_characters():
    """As the names of folders are on some disks."""
    assert names("cafe\u0301") == [("caf\u00e9", "caf\u00e9")]


def test_an_unknown_word():
    with pytest.raises(ConceptError, match=r"^No label is called 'dgo'. Did you mean 'dog'\?"):
        understood(["cat", "dgo"], LABELS)


def test_all_unknown_words_at_once():
    with pytest.raises(ConceptError) as error:
        understood(["dgo", "cat", "truk"], LABELS)
    said = str(error.value)
    assert said.startswith("2 concepts are unknown. No label is called 'dgo'. Did you mean 'dog'?")
    assert "'truk'" in said
    assert "\n" not in said


def test_a_classifier_without_words():
    (wanted,) = understood(["3"], None)
    assert (wanted.category, wanted.cue) == ("3", "3")


@pytest.mark.parametrize("word", ["", " \n", "bell\x07", "half\ud800", "no\ufffe"])
def test_words_that_cannot_be_written_down(word):
    with pytest.raises(ConceptError, match=r"blank|no file of boxes can hold"):
        category(word)


def test_on_one_line():
    assert category("a\n b\u2028\x85c\t") == "a b c"
    assert category("\u0645\u06cc\u200c\u062e &<>\"'") == "\u0645\u06cc\u200c\u062e &<>\"'"  # its joiner is kept


def test_thresholds():
    assert Question().threshold == Question(("dog",)).threshold == 0.5
    assert Question(from_folders=True).threshold == 0
    assert Question(from_folders=True, at_least=0.5).threshold == 0.5
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(ConceptError, match="from 0 to 1"):
            Question(at_least=wrong)
    with pytest.raises(ConceptError, match="name no concepts beside them"):
        Question(("dog",), from_folders=True)

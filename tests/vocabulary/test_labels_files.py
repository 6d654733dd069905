"""Labels from files: as people and other programs write them."""

import json

import pytest

from excite.errors import ConceptError
from excite.vocabulary import Labels

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


def test_other_alphabets(read):
    assert list(read("Kätzchen, Katze\n犬\n")) == ["Kätzchen", "犬"]
    assert list(read('["K\\u00e4tzchen", "犬"]')) == ["Kätzchen", "犬"]


def test_wordnet_numbers_stay_where_not_all_lines_have_one(read):
    assert list(read("n02121808 cat\ndog\n")) == ["n02121808 cat", "dog"]
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
        with pytest.raises(ConceptError, match="Cannot read the labels") as caught:
            Labels.read(path)
        assert str(path) in str(caught.value)

"""``excite tags clean`` as a user meets them."""

import json

import pyarrow.parquet as pq
import pytest

RAW = [
    {"image": "1.jpg", "tags": ["sea", "sky", "boat", "blue", "sun", "Sand"], "user": "ann"},
    {"image": "2.jpg", "tags": ["sun", "sky", "boat", "sea", "wave"], "user": "ann"},  # four of the first five
    {"image": "3.jpg", "tags": ["sun", "sky", "boat", "sea", "wave"], "user": "bob"},
    {"image": "4.jpg", "tags": ["bee", "fly", "gnat", "moth", "wasp"], "user": "bob"},
    {"image": "5.jpg", "tags": ["dog"], "user": "bob"},
]


@pytest.fixture
def raw(here):
    (here / "raw.jsonl").write_text("".join(json.dumps(row) + "\n" for row in RAW))
    return "raw.jsonl"


def test_json(excite, raw):
    ended = excite("tags", "clean", raw, "--out", "kept.parquet", "--min-count", "2", "--json")
    (answer,) = ended.answers
    assert ended.code == 0
    assert {key: answer[key] for key in ("read", "kept", "tags")} == {"read": 5, "kept": 2, "tags": 5}
    assert answer["dropped"] == {
        "no_image": 0,
        "repeated_image": 0,
        "few_tags": 1,
        "alphabetical": 1,
        "similar": 1,
    }
    assert pq.read_table("kept.parquet").column("image").to_pylist() == ["1.jpg", "3.jpg"]
    assert (pq.read_table("kept.parquet").column("tags")[0].as_py())[-1] == "sand"


def test_what_is_printed(excite, raw):
    ended = excite("tags", "clean", raw, "--out", "kept.parquet", "--min-count", "2")
    assert "2 of 5 images are kept" in ended.out
    assert "next: excite tags stats kept.parquet" in ended.out


def test_an_empty_dictionary_is_told(excite, raw):
    ended = excite("tags", "clean", raw, "--out", "kept.parquet")
    assert "no tag is listed 1000 times: give a lower --min-count" in ended.err
    assert ended.code == 0


def test_options(excite, raw, here):
    options = (
        "--min-tags",
        "1",
        "--keep-alphabetical",
        "--keep-similar",
        "--top",
        "3",
        "--min-count",
        "1",
        "--choices",
    )
    (answer,) = excite("tags", "clean", raw, "--out", "kept.parquet", "--json", *options).answers
    assert (answer["kept"], answer["tags"]) == (5, 3)
    assert (here / "kept.choices.md").is_file()


def test_a_skipped_line_is_counted(excite, raw, here):
    with (here / raw).open("ab") as file:
        file.write(b'{"image": "6.jpg", "tags": ["\xff"]}\n{broken\n')
    (answer,) = excite("tags", "clean", raw, "--out", "kept.parquet", "--json").answers
    assert answer["read"] == 7
    assert answer["dropped"]["not_utf8"] == answer["dropped"]["not_json"] == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("none.parquet", "--out", "kept.parquet"), "there is no corpus 'none.parquet'"),
        (("raw.jsonl", "--out", "kept.csv"), "let its name end in .parquet"),
        (("raw.jsonl", "--out", "kept.parquet", "--columns", "tags=keywords"), "has no column 'keywords'"),
        (("raw.jsonl", "--out", "kept.parquet", "--columns", "keywords"), "as in tags=keywords"),
        (("raw.jsonl", "--out", "kept.parquet", "--overlap", "5"), "cannot be shared"),
        (("raw.jsonl", "--out", "kept.parquet", "--against", "none"), "seen or kept"),
        (("raw.jsonl", "--out", "raw.jsonl/kept.parquet"), "cannot write to"),
    ],
)
def test_one_line_says_what_to_do(excite, raw, here, arguments, said):
    before = sorted(path.name for path in here.rglob("*"))
    assert said in excite("tags", "clean", *arguments).complaint
    assert sorted(path.name for path in here.rglob("*")) == before

"""What ``excite tags clean`` says beside its answer, which is in tests/snapshots; refusals are in refused.toml."""

import json

import pytest


@pytest.fixture
def raw(here):
    tags = {"1.jpg": ["sea", "sky", "boat"], "2.jpg": ["wave", "sun", "sand"]}
    lines = [json.dumps({"image": image, "tags": listed, "user": "ann"}) for image, listed in tags.items()]
    (here / "raw.jsonl").write_text("\n".join(lines) + "\n")
    return here / "raw.jsonl"


def test_an_empty_dictionary_is_told(excite, raw):
    ended = excite("tags", "clean", raw, "--out", "kept.parquet", "--min-count", "1000")
    assert "no tag is listed 1000 times: give a lower --min-count" in ended.err
    assert ended.code == 0


def test_users_may_be_missing_and_the_least_count_fits_the_corpus(excite, here):
    """Today's corpora are seldom of 17 million images with their owners."""
    rows = [{"image": f"{k}.jpg", "tags": ["sea", "boat", f"tag {k}"]} for k in range(8)]
    (here / "raw.jsonl").write_text("\n".join(map(json.dumps, rows)))
    ended = excite("tags", "clean", "raw.jsonl", "--out", "kept.parquet", "--min-tags", "1", "--json")
    (answer,) = ended.answers
    assert (answer["kept"], answer["tags"], answer["rules"]["least_count"]) == (8, 2, 2)
    assert "similar" not in answer["dropped"]
    assert ended.err.count("images of the same user were not compared") == 1
    assert "tags listed at least 2 times are in the dictionary" in ended.err
    named = excite("tags", "clean", "raw.jsonl", "--out", "kept.parquet", "--columns", "user=owner")
    assert "has no column 'owner'" in named.complaint


def test_a_skipped_line_is_counted(excite, raw):
    raw.write_bytes(raw.read_bytes() + b'{"image": "6.jpg", "tags": ["\xff"]}\n{broken\n')
    (answer,) = excite("tags", "clean", raw, "--out", "kept.parquet", "--json").answers
    assert answer["read"] == 4
    assert answer["dropped"]["not_utf8"] == answer["dropped"]["not_json"] == 1

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
    ended = excite("tags", "clean", raw, "--out", "kept.parquet")
    assert "no tag is listed 1000 times: give a lower --min-count" in ended.err
    assert ended.code == 0


def test_a_skipped_line_is_counted(excite, raw):
    raw.write_bytes(raw.read_bytes() + b'{"image": "6.jpg", "tags": ["\xff"]}\n{broken\n')
    (answer,) = excite("tags", "clean", raw, "--out", "kept.parquet", "--json").answers
    assert answer["read"] == 4
    assert answer["dropped"]["not_utf8"] == answer["dropped"]["not_json"] == 1

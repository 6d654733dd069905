import gzip
import json
from collections import Counter

import pytest
from typer.testing import CliRunner

from excite.cli.tags import app
from excite.errors import DataError, ExciteError
from excite.tags.captions import STOP_WORDS, CaptionWords, captions_to_corpus, read_stop_words
from excite.tags.corpus import Corpus, schema

WANTED = {"1.jpg": ["dog", "ball", "brown", "run"], "b/2 x.jpg": ["woman"]}
CAPTIONS = {
    "1.jpg": ["A brown dog runs.", "Two dogs with a ball", "The dog's BALL"],
    "b/2 x.jpg": ["An image of women"],
}


def corpus_of(path):
    tables = list(Corpus(path).batches())
    assert all(batch.schema == schema() for batch in tables)
    assert all(user is None for batch in tables for user in batch["user"].to_pylist())
    return {row["image"]: row["tags"] for batch in tables for row in batch.to_pylist()}


ONE, TWO = CAPTIONS.values()
COCO = {
    "images": [{"id": 7, "file_name": "1.jpg"}, {"id": 3, "file_name": "b/2 x.jpg"}],
    "annotations": [
        {"image_id": number, "caption": text}
        for number, text in zip((7, 3, 7, 7), (ONE[0], *TWO, *ONE[1:]), strict=True)
    ],
}
FILES = {
    "c.json": json.dumps(COCO),
    "c.jsonl": "\n".join(json.dumps({"file": name, "captions": some}) for name, some in CAPTIONS.items()),
    "apart.ndjson": "\n".join(
        json.dumps(one)
        for one in [
            {"image": "1.jpg", "caption": ONE[0]},
            {"file_name": "b/2 x.jpg", "captions": TWO},
            {"image": "1.jpg", "captions": ONE[1:]},
        ]
    ),
    "results.token": "".join(f"{name}#{k}\t{one}\n" for name, some in CAPTIONS.items() for k, one in enumerate(some)),
    "c.csv": "caption,image\n" + "".join(f'"{one}",{name}\n' for name, some in CAPTIONS.items() for one in some),
    "c.tsv": "image\tcaption\n" + "".join(f"{name}\t{one}\n" for name, some in CAPTIONS.items() for one in some),
}


@pytest.fixture
def convert(tmp_path):
    """What is counted in a caption file of this content, and its corpus."""

    def corpus(name, content):
        (tmp_path / name).write_bytes(content)
        return captions_to_corpus(tmp_path / name, tmp_path / "out.parquet"), corpus_of(tmp_path / "out.parquet")

    return corpus


@pytest.mark.parametrize("name", FILES)
def test_all_forms_of_caption_files_give_the_same_corpus(convert, name):
    content = FILES[name].encode()
    for counts, found in (convert(name, content), convert(f"{name}.gz", gzip.compress(content))):
        assert list(found.items()) == list(WANTED.items())
        assert counts == {"pictures": 2, "captions": 4, "words": 5, "distinct": 5, "skipped": {}}


def test_which_words_and_in_which_order():
    words = CaptionWords(plurals=False)
    assert words(["red red red cat", "blue cat", "a blue bird"]) == ["cat", "blue", "red", "bird"]
    assert words([]) == words(["", "the of 12 3d x !"]) == []
    said = "A well-lit caf\u00e9, man\u2019s T-shirt; O'Brien's -dash- \u732b\u72ac snow_board 2cats"
    assert words([said]) == "well-lit caf\u00e9 man t-shirt o'brien dash \u732b\u72ac snow board cats".split()
    assert CaptionWords()(["dogs and cans", "a dog"]) == ["dog", "can"]
    assert CaptionWords(plurals=False)(["dogs and cans", "a dog"]) == ["dogs", "cans", "dog"]
    assert CaptionWords(stop_words=frozenset({"dog"}))(["the dogs", "a dog"]) == ["the", "dog"]


def test_stop_words_are_words():
    assert {"the", "there", "some", "picture", "front", "two", "several"} <= STOP_WORDS
    assert not {"man", "red", "large", "sitting", "table", "orange", "can-opener"} & STOP_WORDS
    assert all(
        CaptionWords(plurals=False, stop_words=frozenset())([word]) in ([word], [word.removesuffix("'s")], [])
        for word in STOP_WORDS
    )


def test_rows_that_say_nothing_are_counted(convert):
    good = {"image": "1.jpg", "captions": ["a cat"]}
    bad = [{"captions": ["x"]}, {"image": 1.5, "caption": 7}, {"image": "2.jpg", "captions": []}]
    bad += [{"image": "3.jpg", "captions": ["a", None]}]
    lines = [*map(json.dumps, [good, *bad]), "no json", "[" * 100_000, '{"image": "4.jpg", "caption": "\\ud800"}', ""]
    counts, found = convert("c.jsonl", "\n".join(lines).encode() + b"\n\xff\xfe\n")
    assert counts["skipped"] == {"no_image": 1, "no_caption": 3, "not_json": 2, "not_utf8": 2}
    assert found == {"1.jpg": ["cat"]}
    flickr = b"1.jpg#0\ta cat\n1.jpg#1 no tab\nno number\ta dog\n\n\xff#0\tcat\na#b.jpg#4\ta bird\r\n"
    counts, found = convert("f.token", flickr)
    assert counts["skipped"] == {"no_caption": 1, "no_image": 1, "not_utf8": 1}
    assert found == {"1.jpg": ["cat"], "a#b.jpg": ["bird"]}
    images = [{"id": 1, "file_name": "1.jpg"}, {"id": 2, "file_name": "2.jpg"}, {"id": 3, "file_name": 3}]
    said = [{"image_id": 1, "caption": "cat"}, {"image_id": 9, "caption": "dog"}, {"image_id": 3, "caption": "dog"}]
    counts, _ = convert("c.json", json.dumps({"images": images, "annotations": said}).encode())
    assert counts["skipped"] == {"no_image": 2, "no_caption": 1}


NO_COCO = [b"[1, 2]", b'{"images": []}', b"[" * 100_000, b"\xff\xfe"]
NO_COCO += [b'{"images": [{"id": [], "file_name": ""}], "annotations": []}']
NO_COCO += [b'{"images": [{"id": 1, "file_name": "\\ud800"}], "annotations": []}']


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        *(("c.json", content, "no caption file of COCO") for content in NO_COCO),
        ("c.jsonl", b"", "no image with a caption$"),
        ("c.jsonl", b"{}\n", r"no image with a caption \(1 no_image\)"),
        ("c.csv", b"image,text\n1.jpg,cat\n", "no column 'caption', only 'image', 'text'"),
        ("c.csv", b"", "no image with a caption$"),
        ("c.jsonl.gz", b"not packed", "cannot read"),
        ("c.jpg", b"", "must end in one of .json, .jsonl"),
        ("c.jsonl", b'{"image": "1.jpg", "caption": "the"}', "no word that may be a tag"),
    ],
)
def test_what_is_no_caption_file_is_told_in_one_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        captions_to_corpus(tmp_path / name, tmp_path / "out.parquet")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out.parquet").exists()


def test_stop_words_from_a_file(tmp_path):
    path = tmp_path / "stop.txt"
    path.write_text("The\n\n cat \n")
    assert read_stop_words(path) == {"the", "cat"}
    path.write_bytes(b"\xff")
    with pytest.raises(DataError, match="not UTF-8"):
        read_stop_words(path)
    path.write_bytes(b"x" * (2**20 + 1))
    with pytest.raises(DataError, match="too long"):
        read_stop_words(path)
    with pytest.raises(DataError, match="cannot read the stop words"):
        read_stop_words(tmp_path)


def run(*arguments):
    return CliRunner().invoke(app, ["captions", *map(str, arguments)])


def test_the_command(tmp_path):
    path, out, stop = tmp_path / "c.jsonl", tmp_path / "new" / "out.parquet", tmp_path / "stop.txt"
    path.write_text('{"image": "1.jpg", "caption": "the cats"}\n{"image": "", "caption": "dog"}\n')
    answer = json.loads(run(path, "--out", out, "--json").stdout)
    ones = dict.fromkeys(("pictures", "captions", "words", "distinct"), 1)
    assert answer == {**ones, "skipped": {"no_image": 1}, "file": str(out)}
    assert corpus_of(out) == {"1.jpg": ["cat"]}
    stop.write_text("cats\n")
    result = run(path, "--out", out, "--no-plurals", "--stop-words", stop)
    assert result.stdout == (
        f"1 images with 1 captions: 1 tags, 1 different ones\nskipped: 1 no_image\nwritten: {out}\n"
    )
    assert corpus_of(out) == {"1.jpg": ["the"]}
    assert isinstance(run(tmp_path / "none.csv", "--out", out).exception, ExciteError)
    assert corpus_of(out) == {"1.jpg": ["the"]}  # what was there before stays


@pytest.mark.parametrize("name", ["captions_val2017.json", "labels_train2017.jsonl"])
def test_real_captions(shared_data, tmp_path, name):
    counts = captions_to_corpus(shared_data / "coco" / "annotations" / name, tmp_path / "out.parquet")
    found = corpus_of(tmp_path / "out.parquet")
    words = Counter(tag for tags in found.values() for tag in tags)
    assert counts["pictures"] == len(found) >= 100
    assert counts["words"] == words.total()
    assert counts["distinct"] == len(words)
    assert counts["skipped"] == {}
    assert {"man", "woman", "table"} <= {word for word, _ in words.most_common(30)}
    assert not {"women", "a", "of", "picture"} & words.keys()
    assert sum(map(bool, found.values())) == len(found)

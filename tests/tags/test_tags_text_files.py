"""CSV, TSV and JSON Lines become Parquet: good rows as written, bad ones counted by reason, in bounded memory."""

import csv
import gzip
import io
import json
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from excite.errors import DataError
from excite.tags import text_files
from excite.tags.corpus import ColumnNames, Corpus, schema
from excite.tags.text_files import import_text, open_corpus, write_corpus

USUAL = ColumnNames()


def rows_of(path):
    table = pq.read_table(path)
    assert table.schema == schema()
    return [(row["image"], row["tags"], row["user"]) for row in table.to_pylist()]


@pytest.fixture
def imported(tmp_path):
    """The rows of a file of this content, and what was skipped."""

    def read(name, content, columns=USUAL):
        path = tmp_path / name
        content = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(gzip.compress(content, mtime=0) if name.endswith(".gz") else content)
        skipped = import_text(path, tmp_path / "out.parquet", columns)
        return rows_of(tmp_path / "out.parquet"), dict(skipped)

    return read


def lines(*objects):
    return "\n".join(one if isinstance(one, str) else json.dumps(one) for one in objects)


GOOD = {"image": "1.jpg", "tags": ["cat", "sofa"], "user": "ann"}
WANTED = ("1.jpg", ["cat", "sofa"], "ann")


@pytest.mark.parametrize("name", ["c.jsonl", "c.ndjson", "c.json", "c.JSONL", "c.jsonl.gz"])
def test_json_lines(imported, name):
    content = lines(GOOD, "", {"user": 7, "image": "http://x/\u00e9.jpg", "tags": "dog; ball|red,\tbig"})
    assert imported(name, content) == ([WANTED, ("http://x/\u00e9.jpg", ["dog", "ball", "red", "big"], "7")], {})


@pytest.mark.parametrize("name", ["c.csv", "c.tsv", "c.csv.gz", "c.TSV.gz"])
def test_csv(imported, name):
    fields = [
        ["user", "tags", "more", "image"],
        ["ann", "cat, sofa", "x", "1.jpg"],
        [],
        ["", "", "", "2.jpg"],
        [7, '["a,b", "c"]', "", "3\n.jpg"],
        ["", "dog", "", "4.jpg"],
    ]
    text = io.StringIO(newline="")
    csv.writer(text, delimiter="\t" if ".tsv" in name.lower() else ",").writerows(fields)
    rows, skipped = imported(name, text.getvalue())
    assert rows == [WANTED, ("2.jpg", [], None), ("3\n.jpg", ["a,b", "c"], "7"), ("4.jpg", ["dog"], None)]
    assert skipped == {}


def test_a_byte_order_mark_is_none_of_the_first_name(imported):
    assert imported("c.csv.gz", '\ufeff"image","tags","user"\n1.jpg,"cat,sofa",ann')[0] == [WANTED]
    assert imported("c.jsonl", "\ufeff" + lines(GOOD))[0] == [WANTED]


def test_other_names_of_columns_and_one_that_comes_late(imported):
    names = ColumnNames(image="url", tags="keywords", user=None)
    wanted = [("1", ["a"], None)], {}
    assert imported("c.jsonl", '{"url": "1", "keywords": ["a"], "user": {}}', names) == wanted
    assert imported("c.csv", "url,keywords\n1,a", names) == wanted
    rows, _ = imported("c.jsonl", lines(*[{"image": "1", "tags": []}] * 999, GOOD))
    assert rows == [("1", [], None)] * 999 + [WANTED]


@pytest.mark.parametrize(
    ("tags", "wanted"),
    [
        (["a", "a", ""], ["a", "a", ""]),
        (None, []),
        ("  ", []),
        ("a", ["a"]),
        ("a,,b", ["a", "", "b"]),
        ('["a,b", 3]', ["a,b", "3"]),
        ([2019, "x", 1.50, -0.0], ["2019", "x", "1.5", "-0.0"]),
        (["\u0000", "\x1f", "a\x1fb"], ["\u0000", "\x1f", "a\x1fb"]),
    ],
)
def test_tags_that_are_fine(imported, tags, wanted):
    rows, skipped = imported("c.jsonl", lines({"image": "1", "tags": tags, "user": "u"}, GOOD, {**GOOD, "tags": "x;y"}))
    assert rows == [("1", wanted, "u"), WANTED, ("1.jpg", ["x", "y"], "ann")]
    assert skipped == {}


def test_tags_of_a_wrong_kind_are_counted(imported):
    deep = json.loads("[" * 17 + "]" * 17)
    wrong = [7, True, {"a": 1}, ["a", None], ["a", True], ["a", ["b"]], deep]
    wrong += ["['a', 'b']", "[[]]", "[null]", "[" * 9999 + "]"]
    content = lines(*({"image": "1", "tags": tags} for tags in wrong), GOOD)
    assert imported("c.jsonl", content) == ([WANTED], {"no_tags_list": len(wrong)})


def test_bad_lines_of_json_are_counted_by_reason(imported):
    content = lines(
        "{", "[1]", "null", "NaN", '{"image": NaN}', "[" * 100_000, '{"a":' * 50_000,  # not_json
        {"tags": ["a"]}, {"image": None}, {"image": " "}, {"image": ["x"]}, {"image": True},  # no_image
        {**GOOD, "user": {}}, {**GOOD, "user": False},  # wrong_user
        '{"image": "1", "tags": ["\\ud800"]}', '{"image": "\\uDFFF", "tags": []}',  # not_utf8
        '{"image": "\\ud83d\\ude00", "tags": "a", "user": 12345678901234567890.10}', "9" * 5000,  # fine, not_json
    ).encode()  # fmt: skip
    rows, skipped = imported("c.jsonl", content + b"\n\xff\xfe\n" + lines(GOOD).encode() + b"\n\0\n")
    assert rows == [("\U0001f600", ["a"], "12345678901234567890.10"), WANTED]
    assert skipped == {"not_json": 9, "no_image": 5, "wrong_user": 2, "not_utf8": 3}


def test_bad_rows_of_csv_are_counted_by_reason(imported):
    content = b'image,tags,user\n1.jpg,"cat,sofa",ann\n1,2\n1,2,3,4\n,a,b\n"a"b,c,d\n\xff,a,b\n1,[x],b\nx\0y,\0,z\n'
    rows, skipped = imported("c.csv", content)
    assert rows == [WANTED, ("x\0y", ["\0"], "z")]
    assert skipped == {"wrong_columns": 3, "no_image": 1, "not_utf8": 1, "no_tags_list": 1}


def test_a_quote_that_is_never_closed_costs_one_row(imported):
    content = 'image\ttags\tuser\n1\t"a\tu\n' + "".join(f"{k}\tb\tu\n" for k in range(2, 500))
    rows, skipped = imported("c.tsv", content)
    assert [image for image, _, _ in rows] == [str(k) for k in range(2, 500)]
    assert skipped == {"wrong_columns": 1}


def test_many_quotes_that_are_never_closed_end_soon(monkeypatch, tmp_path):
    """Each of these lines opens a quote that none of the others closes, so each could be read to the end."""
    decoded = []
    original = text_files._Lines.__next__
    monkeypatch.setattr(text_files, "ROW_LIMIT", 10_000)
    monkeypatch.setattr(text_files._Lines, "__next__", lambda self: decoded.append(line := original(self)) or line)
    path = tmp_path / "c.csv"
    path.write_text("image,tags,user\n1,2,3\n" + 'x",y,"z\n' * 20_000)
    assert set(import_text(path, tmp_path / "out.parquet", USUAL)) <= {"too_long", "wrong_columns"}
    assert sum(map(len, decoded)) <= 2 * path.stat().st_size


@pytest.mark.parametrize("name", ["c.csv", "c.jsonl"])
def test_long_rows(imported, tmp_path, monkeypatch, name):
    """A long tag is only a long tag; a row beyond the limit is counted and never held."""
    monkeypatch.setattr(text_files, "ROW_LIMIT", 2**18)

    def row(image, tags):
        return f'{image},"{tags}",ann\n' if name == "c.csv" else lines({**GOOD, "image": image, "tags": tags}) + "\n"

    head, long = "image,tags,user\n" if name == "c.csv" else "", "x" * 2**17
    assert imported(name, head + row("1.jpg", long)) == ([("1.jpg", [long], "ann")], {})
    assert imported(name, head + row("1.jpg", f"a{' ' * 2**17},b")) == ([("1.jpg", ["a", "b"], "ann")], {})
    before = csv.field_size_limit()
    (tmp_path / name).write_text(head + row("0", 128 * long) + row("1.jpg", "cat,sofa"))
    tracemalloc.start()
    skipped = import_text(tmp_path / name, tmp_path / "out.parquet", USUAL)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows_of(tmp_path / "out.parquet") == [WANTED]
    assert skipped == {"too_long": 1}
    assert most < 8 * 2**20
    assert csv.field_size_limit() == before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.csv", "image,words\n1,2", "no column 'tags', only 'image', 'words': say which one it is, as in --columns"),
        ("c.csv", "image;tags;user\n", "has no column 'image', only 'image;tags;user'"),
        ("c.csv", "image,tags,tags,user\n1,2,3,4", "more than one column 'tags'"),
        ("c.csv", b"\xff\xfei\0m\0", "must begin with a line of its columns' names, in UTF-8"),
        ("c.csv", '"image', "must begin with a line of its columns' names"),
        ("c.csv", "", "is empty"),
        ("c.csv", "image,tags,user\n", "is empty"),
        ("c.csv", "image,tags,user\n1\n", "no row that can be used (1 wrong_columns)"),
        ("c.jsonl", "\n \n", "is empty"),
        ("c.json", '[\n{"image": "1"}\n]', "has no column 'tags', only 'image'"),
        ("c.json", "[{}]", "no row that can be used (1 not_json)"),
        ("c.jsonl", lines(*[{"image": "1", "words": []}] * 3), "has no column 'tags', only 'image', 'words'"),
        ("c.jsonl", lines(*[{"image": "1", "tags": []}] * 1000, GOOD), "has no column 'user', only 'image', 'tags'"),
        ("c.jsonl.gz", "no gzip", "cannot read"),
        ("c.jsonl.gz", gzip.compress(lines(GOOD).encode(), mtime=0)[:-12], "cannot read"),
        ("c.xls", "", "what can be read: .parquet, .pq, a folder"),
        ("none.csv", None, "cannot read"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_used_are_told_in_one_line(tmp_path, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError) as caught:
        open_corpus(path, USUAL, tmp_path / "work")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("work/*"))


def test_row_groups_are_of_bounded_size_and_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "BATCH", 100)
    monkeypatch.setattr(text_files, "CHUNK", 30)
    wanted = [(f"{k}.jpg", [str(k)] * (k % 4), None if k % 3 else f"u{k}") for k in range(1033)]
    records = [(image, tags if len(tags) % 2 else ",".join(tags) or [], user) for image, tags, user in wanted]

    def written():
        write_corpus(iter(records), tmp_path / "out.parquet")
        assert rows_of(tmp_path / "out.parquet") == wanted
        return [group.rows for group in Corpus(tmp_path / "out.parquet").row_groups]

    assert written() == [100] * 10 + [33]
    monkeypatch.setattr(text_files, "CHUNK_WEIGHT", 50)
    monkeypatch.setattr("excite.tags.corpus.MOST_BYTES", 200)
    assert len(written()) > 50


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
IMAGE = TEXT.filter(lambda text: text.strip())
RECORDS = st.lists(st.tuples(IMAGE, st.lists(TEXT, max_size=4), st.none() | TEXT.filter(bool)), min_size=1, max_size=8)
BETWEEN = {".csv": ",", ".tsv": "\t"}


def written(records, kind):
    if kind == ".jsonl":
        return "".join(json.dumps({"image": i, "tags": t, "user": u}, ensure_ascii=False) + "\n" for i, t, u in records)
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=BETWEEN[kind], quoting=csv.QUOTE_ALL)
    writer.writerow(["image", "tags", "user"])
    writer.writerows((i, json.dumps(t, ensure_ascii=len(i) % 2 == 0), u) for i, t, u in records)
    return text.getvalue()


ODD = st.binary(max_size=60) | st.text("a,\"\n\t\r\0'[]", max_size=60).map(str.encode)


@settings(max_examples=40, deadline=None)
@given(records=RECORDS, content=ODD, kind=st.sampled_from([".csv", ".tsv", ".jsonl"]))
def test_what_was_written_is_read_and_any_other_bytes_are_read_or_counted(records, content, kind):
    with TemporaryDirectory() as folder:
        path, out = Path(folder, f"c{kind}"), Path(folder, "out.parquet")
        path.write_bytes(written(records, kind).encode())
        assert not import_text(path, out, USUAL)
        assert rows_of(out) == records
        path.write_bytes(written(records, kind).encode() + content)
        skipped = import_text(path, out, USUAL)
        assert rows_of(out)[: len(records)] == records
        assert set(skipped) <= {"not_utf8", "not_json", "wrong_columns", "no_image", "no_tags_list", "wrong_user"}


def test_parquet_is_taken_as_it_is(tmp_path):
    path = write_corpus([("1.jpg", ["cat", "sofa"], "ann")], tmp_path / "c.parquet")
    for place in (path, tmp_path):
        corpus, skipped = open_corpus(place, USUAL, tmp_path / "work")
        assert (corpus.path, corpus.rows, dict(skipped)) == (place, 1, {})
    assert not (tmp_path / "work").exists()


def test_parquet_of_text_is_made_once(tmp_path, monkeypatch):
    work, path, made = tmp_path / "work", tmp_path / "c.csv", []
    really = text_files.import_text
    monkeypatch.setattr(text_files, "import_text", lambda *given: made.append(given) or really(*given))

    def opened(columns=USUAL):
        corpus, skipped = open_corpus(path, columns, work)
        assert corpus.path == work / "corpus.parquet"
        return [tuple(row.values()) for batch in corpus.batches() for row in batch.to_pylist()], skipped

    path.write_text("image,tags,user,more\n1.jpg,cat,ann,dog\nbad\n")
    first = opened()
    assert first == ([("1.jpg", ["cat"], "ann")], {"wrong_columns": 1})
    assert opened() == first
    assert len(made) == 1
    assert opened(ColumnNames(tags="more"))[0] == [("1.jpg", ["dog"], "ann")]
    path.write_text("image,tags,user\n1.jpg,cat,ann\n2.jpg,cat,ann\n")
    assert len(opened()[0]) == 2
    (work / "corpus.parquet").unlink()
    opened()
    assert len(made) == 4


def test_what_failed_or_was_stopped_is_not_taken_for_the_file_before(tmp_path, monkeypatch):
    work, first, second = tmp_path / "work", tmp_path / "1.csv", tmp_path / "2.csv"
    for path in (first, second):
        path.write_text(f"image,tags,user\n{path.stem}.jpg,cat,ann\n")
    open_corpus(first, USUAL, work)
    with monkeypatch.context() as patch:
        patch.setattr(text_files, "save_json", lambda *_: pytest.fail("stopped"))
        with pytest.raises(pytest.fail.Exception, match="stopped"):
            open_corpus(second, USUAL, work)
    open_corpus(first, USUAL, work)
    assert rows_of(work / "corpus.parquet") == [("1.jpg", ["cat"], "ann")]
    first.write_text("nothing")
    for _ in range(2):
        with pytest.raises(DataError, match="has no column"):
            open_corpus(first, USUAL, work)

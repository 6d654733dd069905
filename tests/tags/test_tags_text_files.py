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
from excite.tags.corpus import ColumnNames, Corpus, schema
from excite.tags.formats import parquet
from excite.tags.formats import rows as raw_rows
from excite.tags.formats.parquet import import_text, open_corpus, write_corpus


def rows_of(path):
    table = pq.read_table(path)
    assert table.schema == schema()
    return [(row["image"], row["tags"], row["user"]) for row in table.to_pylist()]


@pytest.fixture
def imported(tmp_path):
    """The rows of a file of this content, and what was skipped."""

    def read(name, content, **options):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        skipped = import_text(path, tmp_path / "out.parquet", **options)
        return rows_of(tmp_path / "out.parquet"), dict(skipped)

    return read


@pytest.fixture
def refused(tmp_path):
    """What is said of a file that cannot be used; nothing is left behind."""

    def read(name, content, **options):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(DataError) as caught:
            import_text(path, tmp_path / "out.parquet", **options)
        assert "\n" not in str(caught.value)
        assert list(tmp_path.iterdir()) == [path]
        return str(caught.value)

    return read


def lines(*objects):
    return "\n".join(one if isinstance(one, str) else json.dumps(one) for one in objects)


GOOD = {"image": "1.jpg", "tags": ["cat", "sofa"], "user": "ann"}
WANTED = ("1.jpg", ["cat", "sofa"], "ann")


@pytest.mark.parametrize("name", ["c.jsonl", "c.ndjson", "c.json", "c.JSONL", "c.jsonl.gz"])
def test_json_lines(imported, name):
    content = lines(GOOD, "", {"user": 7, "image": "http://x/\u00e9.jpg", "tags": "dog; ball|red,\tbig"}).encode()
    rows, skipped = imported(name, gzip.compress(content, mtime=0) if name.endswith("gz") else content)
    assert rows == [WANTED, ("http://x/\u00e9.jpg", ["dog", "ball", "red", "big"], "7")]
    assert skipped == {}


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
    content = text.getvalue()
    rows, skipped = imported(name, gzip.compress(content.encode(), mtime=0) if name.endswith("gz") else content)
    assert rows == [WANTED, ("2.jpg", [], None), ("3\n.jpg", ["a,b", "c"], "7"), ("4.jpg", ["dog"], None)]
    assert skipped == {}


def test_a_byte_order_mark_is_none_of_the_first_name(imported):
    assert imported("c.csv", '\ufeff"image","tags","user"\n1.jpg,"cat,sofa",ann')[0] == [WANTED]
    assert imported("c.jsonl", "\ufeff" + lines(GOOD))[0] == [WANTED]


def test_other_names_of_columns(imported):
    names = ColumnNames(image="url", tags="keywords", user=None)
    assert imported("c.jsonl", '{"url": "1", "keywords": ["a"], "user": {}}', columns=names) == (
        [("1", ["a"], None)],
        {},
    )
    assert imported("c.csv", "url,keywords\n1,a", columns=names) == ([("1", ["a"], None)], {})


def test_other_separators(imported, refused):
    content = lines({"image": "1", "tags": "a b,c", "user": None}, {"image": "2", "tags": ["a b"]})
    assert imported("c.jsonl", content, separators=" ")[0] == [("1", ["a", "b,c"], None), ("2", ["a b"], None)]


def test_separators_that_are_no_pattern(refused):
    assert "'(' are no regular expression" in refused("c.jsonl", lines(GOOD), separators="(")


@pytest.mark.parametrize(
    ("tags", "wanted"),
    [
        (["a", "a", ""], ["a", "a", ""]),
        ([], []),
        (None, []),
        ("", []),
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


DEEP = json.loads("[" * 17 + "]" * 17)


@pytest.mark.parametrize(
    "tags",
    [7, True, {"a": 1}, ["a", None], ["a", True], ["a", ["b"]], DEEP, "['a', 'b']", "[[]]", "[null]", "[" * 9999 + "]"],
)
def test_tags_of_a_wrong_kind_are_counted(imported, tags):
    assert imported("c.jsonl", lines({"image": "1", "tags": tags}, GOOD)) == ([WANTED], {"no_tags_list": 1})


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
    read = 0
    original_line = raw_rows.bounded_line

    def counting(file):
        nonlocal read
        line = original_line(file)
        read += len(line)
        return line

    monkeypatch.setattr(raw_rows, "bounded_line", counting)
    monkeypatch.setattr(raw_rows, "ROW_LIMIT", 10_000)
    decoded = []
    original = raw_rows._Lines.__next__
    monkeypatch.setattr(raw_rows._Lines, "__next__", lambda self: decoded.append(line := original(self)) or line)
    path = tmp_path / "c.csv"
    path.write_text("image,tags,user\n1,2,3\n" + 'x",y,"z\n' * 20_000)
    skipped = import_text(path, tmp_path / "out.parquet")
    assert set(skipped) <= {"too_long", "wrong_columns"}
    assert sum(map(len, decoded)) <= 2 * read


@pytest.mark.parametrize("name", ["c.csv", "c.jsonl"])
def test_a_megabyte_of_a_tag_is_only_a_long_tag(imported, name):
    tag = "x" * 2**20
    content = lines({**GOOD, "tags": [tag]}) if name == "c.jsonl" else f"image,tags,user\n1.jpg,{tag},ann\n"
    assert imported(name, content) == ([("1.jpg", [tag], "ann")], {})
    spaces = " " * 2**20
    content = (
        lines({**GOOD, "tags": f"a{spaces},b"}) if name == "c.jsonl" else f'image,tags,user\n1.jpg,"a{spaces},b",ann\n'
    )
    assert imported(name, content) == ([("1.jpg", ["a", "b"], "ann")], {})


@pytest.mark.parametrize("name", ["c.csv", "c.jsonl"])
def test_a_row_that_is_too_long_is_counted_and_never_held(tmp_path, name, monkeypatch):
    before = csv.field_size_limit()
    path = tmp_path / name
    with path.open("w") as file:
        file.write("image,tags,user\n" if name == "c.csv" else "")
        file.write('0,"' if name == "c.csv" else '{"image": "0", "tags": "')
        for _ in range(64):
            file.write("x" * 2**20)
        file.write('",u\n' if name == "c.csv" else '"}\n')
        file.write('1.jpg,"cat,sofa",ann\n' if name == "c.csv" else lines(GOOD))
    tracemalloc.start()
    skipped = import_text(path, tmp_path / "out.parquet")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows_of(tmp_path / "out.parquet") == [WANTED]
    assert skipped == {"too_long": 1}
    assert most < 48 * 2**20
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
        ("c.jsonl", "", "is empty"),
        ("c.jsonl", "\n \n", "is empty"),
        ("c.json", '[\n{"image": "1"}\n]', "has no column 'tags', only 'image'"),
        ("c.json", "[{}]", "no row that can be used (1 not_json)"),
        ("c.jsonl", lines(*[{"image": "1", "words": []}] * 3), "has no column 'tags', only 'image', 'words'"),
        ("c.jsonl", lines(*[{"image": "1", "tags": []}] * 1000, GOOD), "has no column 'user', only 'image', 'tags'"),
        ("c.jsonl", lines({**GOOD, "image": None}), "no row that can be used (1 no_image)"),
        ("c.jsonl.gz", "no gzip", "cannot read"),
        ("c.jsonl.gz", gzip.compress(lines(GOOD).encode(), mtime=0)[:-12], "cannot read"),
        ("c.xls", "", "must end in one of .csv, .tsv, .jsonl, .ndjson, .json, or .gz"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_used_are_told_in_one_line(refused, name, content, message):
    assert message in refused(name, content)


def test_a_column_may_come_late(imported):
    rows, _ = imported("c.jsonl", lines(*[{"image": "1", "tags": []}] * 999, GOOD))
    assert rows == [("1", [], None)] * 999 + [WANTED]


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="there is no file"):
        import_text(tmp_path / "none.csv", tmp_path / "out.parquet")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="cannot read"):
        import_text(tmp_path / "folder.csv", tmp_path / "out.parquet")


def test_row_groups_are_of_bounded_size_and_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "BATCH", 100)
    monkeypatch.setattr(parquet, "CHUNK", 30)
    wanted = [(f"{k}.jpg", [str(k)] * (k % 4), None if k % 3 else f"u{k}") for k in range(1033)]
    read = 0

    def records():
        nonlocal read
        for image, tags, user in wanted:
            read += 1
            yield image, tags if len(tags) % 2 else ",".join(tags) or [], user

    write_corpus(records(), tmp_path / "out.parquet")
    groups = pq.ParquetFile(tmp_path / "out.parquet").metadata
    assert [groups.row_group(k).num_rows for k in range(groups.num_row_groups)] == [100] * 10 + [33]
    assert rows_of(tmp_path / "out.parquet") == wanted
    monkeypatch.setattr(parquet, "CHUNK_LETTERS", 50)
    monkeypatch.setattr(parquet, "GROUP_BYTES", 200)
    write_corpus(records(), tmp_path / "out.parquet")
    assert pq.ParquetFile(tmp_path / "out.parquet").metadata.num_row_groups > 50
    assert rows_of(tmp_path / "out.parquet") == wanted


def test_a_real_row_group(tmp_path):
    write_corpus(((str(k), ["a", "b"], None) for k in range(100_001)), tmp_path / "out.parquet")
    assert [row_group.rows for row_group in Corpus(tmp_path / "out.parquet").row_groups] == [100_000, 1]


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
IMAGE = TEXT.filter(lambda text: text.strip())
RECORDS = st.lists(st.tuples(IMAGE, st.lists(TEXT, max_size=4), st.none() | TEXT.filter(bool)), min_size=1, max_size=8)
WHOLE = {".csv": ",", ".tsv": "\t"}


def written(records, kind):
    if kind == ".jsonl":
        return "".join(json.dumps({"image": i, "tags": t, "user": u}, ensure_ascii=False) + "\n" for i, t, u in records)
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=WHOLE[kind], quoting=csv.QUOTE_ALL)
    writer.writerow(["image", "tags", "user"])
    writer.writerows((i, json.dumps(t, ensure_ascii=len(i) % 2 == 0), u) for i, t, u in records)
    return text.getvalue()


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".jsonl"])
@settings(max_examples=60, deadline=None)
@given(records=RECORDS)
def test_what_was_written_is_read(kind, records):
    with TemporaryDirectory() as folder:
        path, out = Path(folder, f"c{kind}"), Path(folder, "out.parquet")
        path.write_bytes(written(records, kind).encode())
        assert not import_text(path, out)
        assert rows_of(out) == records


@settings(max_examples=150, deadline=None)
@given(
    content=st.binary(max_size=60) | st.text("a,\"\n\t\r\0'[]", max_size=60).map(str.encode),
    kind=st.sampled_from([".csv", ".tsv", ".jsonl"]),
)
def test_any_bytes_are_read_or_counted(content, kind):
    with TemporaryDirectory() as folder:
        path, out = Path(folder, f"c{kind}"), Path(folder, "out.parquet")
        head = (
            b'{"image": "0", "tags": [], "user": ""}\n'
            if kind == ".jsonl"
            else f"image{WHOLE[kind]}tags{WHOLE[kind]}user\n0{WHOLE[kind] * 2}\n".encode()
        )
        path.write_bytes(head + content)
        skipped = import_text(path, out)
        assert rows_of(out)[0] == ("0", [], None)
        assert set(skipped) <= {"not_utf8", "not_json", "wrong_columns", "no_image", "no_tags_list", "wrong_user"}


def test_open_any_takes_parquet_as_it_is(tmp_path):
    path = write_corpus([("1.jpg", ["cat", "sofa"], "ann")], tmp_path / "c.parquet")
    for place in (path, tmp_path):
        corpus, skipped = open_corpus(place, ColumnNames(), tmp_path / "work")
        assert corpus.path == place
        assert corpus.rows == 1
        assert not skipped
    assert not (tmp_path / "work").exists()


def test_open_any_makes_parquet_of_text_once(tmp_path, monkeypatch):
    work, path, made = tmp_path / "work", tmp_path / "c.csv", []
    really = parquet.import_text
    monkeypatch.setattr(parquet, "import_text", lambda *given: made.append(given) or really(*given))

    def opened(columns=ColumnNames()):  # noqa: B008 - it cannot be changed
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
    assert len(made) == 3
    (work / "corpus.made_from.json").write_text("{}")
    (opened(), opened())
    assert len(made) == 4
    (work / "corpus.parquet").unlink()
    opened()
    assert len(made) == 5


def test_a_text_that_fails_is_not_taken_for_the_one_before(tmp_path):
    work, path = tmp_path / "work", tmp_path / "c.csv"
    path.write_text("image,tags,user\n1.jpg,cat,ann\n")
    open_corpus(path, ColumnNames(), work)
    path.write_text("nothing")
    for _ in range(2):
        with pytest.raises(DataError, match="has no column"):
            open_corpus(path, ColumnNames(), work)


def test_a_run_that_was_stopped_leaves_no_note_of_the_file_before(tmp_path, monkeypatch):
    work, first, second = tmp_path / "work", tmp_path / "1.csv", tmp_path / "2.csv"
    for path in (first, second):
        path.write_text(f"image,tags,user\n{path.stem}.jpg,cat,ann\n")
    open_corpus(first, ColumnNames(), work)
    with monkeypatch.context() as patch:
        patch.setattr(parquet, "save_json", lambda *_: pytest.fail("stopped"))
        with pytest.raises(pytest.fail.Exception, match="stopped"):
            open_corpus(second, ColumnNames(), work)
    open_corpus(first, ColumnNames(), work)
    assert rows_of(work / "corpus.parquet") == [("1.jpg", ["cat"], "ann")]


@pytest.mark.parametrize(
    ("name", "message"), [("c.xls", "what can be read: .parquet, .pq, a folder"), ("c.csv", "cannot read")]
)
def test_open_any_says_what_it_takes(tmp_path, name, message):
    with pytest.raises(DataError, match=message):
        open_corpus(tmp_path / name, ColumnNames(), tmp_path)

"""A cleaning follows the rules exactly, whatever the format of the corpus and the executor."""

import json
import pickle
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import reference_cleaning
from generate_tags import CORPUS, COUNTS, KINDS, TRUTH, CorpusSpec, generate
from hypothesis import given, settings
from hypothesis import strategies as st

from excite.errors import DataError, ExciteError
from excite.io.files import Lock
from excite.jobs import Executor
from excite.tags import cleaning, database
from excite.tags.cleaning import CleaningRun, variants_of
from excite.tags.corpus import ColumnNames, row_group_writer, schema
from excite.tags.dictionary import Dictionary, TagNormaliser
from excite.tags.rules import RULES as NAMES
from excite.tags.rules import CorpusSurvey, Rules

RULES = Rules(least_count=20)
WANTED = CorpusSpec(4000, tags=300, marks=2000, pictures_a_user=40)
FILES = ("kept.parquet", "kept.tags.csv", "kept.dropped.parquet", "kept.report.json")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    assert list(generate(WANTED, folder)) == [WANTED.rows]
    return folder


@pytest.fixture(scope="module")
def records(made):
    return [tuple(row.values()) for row in pq.read_table(made / CORPUS).to_pylist()]


def cleaned(source, folder, rules=RULES, **options):
    report = CleaningRun(source, folder / "kept.parquet", rules, **options).clean()
    names = {path.name for path in folder.iterdir()}
    assert names >= set(FILES)
    assert not [name for name in names if name.startswith(".")]  # nothing half done is left
    return report


def verdicts(folder, rows):
    """For each row the rule that dropped it, and the row it is like."""
    found = [("", None)] * rows
    for one in pq.read_table(folder / "kept.dropped.parquet").to_pylist():
        found[one["row"]] = (one["rule"], one["like"])
    return found


def kept(folder):
    return pq.read_table(folder / "kept.parquet").to_pylist()


@pytest.fixture(scope="module")
def whole(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    cleaned(made / CORPUS, folder)
    return folder


class TestTruth:
    """The generator's truth is that of the plain rules, and so is the cleaning's."""

    @pytest.mark.parametrize("against", ["seen", "kept"])
    def test_of_the_generator_and_of_the_cleaning(self, made, records, tmp_path, against):
        expected = reference_cleaning.clean(records, against)
        rules = [rule for rule, _ in expected]
        truth = pq.read_table(made / TRUTH)
        assert truth.column(against).to_pylist() == rules
        assert set(truth.column("kind").to_pylist()) == {kind.name for kind in KINDS}
        assert truth.column("seen") != truth.column("kept")
        report = cleaned(made / CORPUS, tmp_path, replace(RULES, against=against))
        assert verdicts(tmp_path, len(records)) == expected
        assert report["read"] == len(records)
        assert report["kept"] == rules.count("") == len(kept(tmp_path))
        assert report["dropped"] == {rule: rules.count(rule) for rule in report["dropped"]}
        assert {"few_tags", "alphabetical", "similar", "repeated_image"} <= set(report["dropped"])
        stays = [record for record, rule in zip(records, rules, strict=True) if not rule]
        expected = [(image, [reference_cleaning.tidy(tag) for tag in tags], user) for image, tags, user in stays]
        assert [tuple(row.values()) for row in kept(tmp_path)] == expected
        assert report["changed"].keys() == {"case", "spaces"}

    def test_of_the_dictionary(self, made, records, whole, tmp_path):
        truth, counts = Dictionary.read(made / COUNTS), reference_cleaning.counts(records)
        assert dict(zip(truth.tags, truth.counts, strict=True)) == counts
        often = Dictionary.ranked(one for one in counts.items() if one[1] >= RULES.least_count)
        assert Dictionary.read(whole / "kept.tags.csv") == often
        assert cleaned(made / CORPUS, tmp_path, replace(RULES, most_tags=7))["tags"] == 7
        assert Dictionary.read(tmp_path / "kept.tags.csv").tags == often.tags[:7]

    def test_rules_can_be_changed_and_left_out(self, made, records, tmp_path):
        cleaned(made / CORPUS, tmp_path, Rules(least_tags=8, first=4, overlap=1))
        assert verdicts(tmp_path, len(records)) == reference_cleaning.clean(records, least_tags=8, first=4, overlap=1)
        rules = Rules(least_tags=0, alphabetical=False, similar=False)
        report = cleaned(made / CORPUS, tmp_path, rules, columns=ColumnNames(user=None))
        assert set(report["dropped"]) == {"no_image", "repeated_image", "few_tags"}
        assert report["kept"] == WANTED.rows - report["dropped"]["repeated_image"]

    def test_what_other_choices_cost(self, made, records, tmp_path):
        cleaned(made / CORPUS, tmp_path, variants=True)
        told = json.loads((tmp_path / "kept.choices.json").read_text())
        assert [row["choice"] for row in told["pictures"]] == [name for name, _ in variants_of(RULES)]
        for row, (_, rules) in zip(told["pictures"], variants_of(RULES), strict=True):
            if rules.similar and rules.alphabetical:
                expected = reference_cleaning.clean(records, rules.against, rules.least_tags, overlap=rules.overlap)
                assert row["kept"] == sum(not rule for rule, _ in expected)
                assert row["similar"] == sum(rule == "similar" for rule, _ in expected)
            else:  # the plain rules cannot leave one out
                (folder := tmp_path / row["choice"]).mkdir()
                report = cleaned(made / CORPUS, folder, rules)
                assert (row["kept"], row["similar"]) == (report["kept"], report["dropped"].get("similar", 0))
        counts = Dictionary.read(made / COUNTS).counts
        for row in told["dictionary"]:
            assert row["tags"] == sum(count >= row["least_count"] for count in counts)
        text = (tmp_path / "kept.choices.md").read_text()
        assert f"| as asked | {told['pictures'][0]['kept']:,} |" in text


TAGS = st.lists(st.sampled_from("abcdefgh"), max_size=7)
ROWS = st.lists(
    st.tuples(st.integers(0, 40).map(str), TAGS, st.sampled_from(["ann", "bob", None])), min_size=1, max_size=30
)


@settings(max_examples=15, deadline=None)
@given(rows=ROWS, least=st.integers(0, 4), first=st.integers(1, 6), data=st.data())
def test_as_comparing_all_with_all(tmp_path_factory, rows, least, first, data):
    overlap = data.draw(st.integers(0, first - 1))
    columns = dict(zip(schema().names, map(list, zip(*rows, strict=True)), strict=True))
    store = cleaning.SurveyStore(tmp_path_factory.mktemp("survey"))
    images, counts = cleaning.survey(pa.RecordBatch.from_pydict(columns, schema()), TagNormaliser(), first)
    store.add({"key": "all", "images": images, "counts": counts})
    with database() as tables:
        merged = CorpusSurvey(tables, [store.path("all", "images")], [store.path("all", "counts")])
        for against in ("seen", "kept"):
            found, like = merged.verdicts(Rules(least_tags=least, first=first, overlap=overlap, against=against))
            names = [(["", *NAMES][rule], None if row < 0 else row) for rule, row in zip(found, like, strict=True)]
            assert names == reference_cleaning.clean(rows, against, least, first, overlap)


class TestSameWhateverTheForm:
    def same(self, folder, whole, files=FILES):
        for name in files:
            assert (folder / name).read_bytes() == (whole / name).read_bytes(), name

    def test_row_groups_parts_and_json_lines(self, records, whole, tmp_path, write_rows):
        cleaned(write_rows(tmp_path / "small.parquet", records, 170), tmp_path)
        self.same(tmp_path, whole)
        (parts := tmp_path / "parts").mkdir()
        for name, rows in (("a", records[:1300]), ("b", []), ("c", records[1300:])):
            write_rows(parts / f"{name}.parquet", rows)
        cleaned(parts, tmp_path)
        self.same(tmp_path, whole)
        lines = [json.dumps({"user": user, "image": image, "tags": tags}) for image, tags, user in records]
        (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
        cleaned(tmp_path / "corpus.jsonl", tmp_path)
        self.same(tmp_path, whole)

    def test_others_do_the_work(self, records, whole, tmp_path, write_rows):
        """As processes and Ray do it, on which tests/jobs runs it: nothing is shared but what can be pickled."""

        def sent(thing):
            return pickle.loads(pickle.dumps(thing))  # noqa: S301 - our own

        start = []

        class Elsewhere(Executor):
            @contextmanager
            def start(self, work, writes=None):
                start.append(1)
                there = sent(work)

                def runner(jobs):
                    for job in jobs:
                        task = sent(job.task)
                        assert there.key(task) == job.key
                        yield job, sent(there(task)) if job.known is None else job.known

                yield runner

        cleaned(write_rows(tmp_path / "corpus.parquet", records), tmp_path, workers=Elsewhere())
        self.same(tmp_path, whole)
        assert len(start) == 1  # to begin anew for each step would take longer than a small corpus

    def test_stopped_anywhere(self, records, whole, tmp_path, monkeypatch, write_rows):
        source = write_rows(tmp_path / "corpus.parquet", records, 1000)
        surveyed = []
        honest = cleaning.survey
        monkeypatch.setattr(cleaning, "survey", lambda *given: surveyed.append(1) or honest(*given))

        class Stopped(Exception):
            pass

        for stop in range(1, 40):
            left = [stop]

            def progress(items, _total, _what, left=left):
                for item in items:
                    left[0] -= 1
                    if left[0] < 0:
                        raise Stopped
                    yield item

            try:
                cleaned(source, tmp_path, progress=progress)
                break
            except Stopped:
                assert not (tmp_path / "kept.parquet").exists()
        assert stop == 2 * len(records) // 1000  # after each row group, surveyed and written
        self.same(tmp_path, whole)
        assert len(surveyed) == len(records) // 1000  # each row group once


class TestOddInput:
    FIVE = ("e", "d", "c", "b", "a")

    @pytest.fixture
    def clean(self, tmp_path, write_rows):
        """Cleans these rows."""
        return lambda rows, rules=RULES: cleaned(write_rows(tmp_path / "c.parquet", rows, 5000), tmp_path, rules)

    def test_rows_without_image_user_or_tags(self, tmp_path, clean):
        rows = [(None, self.FIVE, "u"), ("", self.FIVE, "u"), ("1", None, "u"), ("2", [None, *self.FIVE], "u")]
        rows += [("3", self.FIVE, None), ("4", self.FIVE, None), ("2", self.FIVE, "u"), ("5", self.FIVE[::-1], "u")]
        report = clean(rows)
        assert [row["image"] for row in kept(tmp_path)] == ["2", "3", "4"]
        assert kept(tmp_path)[0]["tags"] == list(self.FIVE)
        assert report["dropped"] == dict(zip(NAMES, (2, 1, 1, 1, 0), strict=True))
        assert report["without_user"] == 2

    def test_many_rows_without_tags_come_first(self, clean):
        """duckdb 2.0 fails where it meets nothing but empty lists over a dictionary."""
        rows = [(f"{k}", [], "u") for k in range(4096)] + [("last", self.FIVE, "u")]
        assert clean(rows)["dropped"]["few_tags"] == 4096

    def test_a_megabyte_tag_is_left_out(self, tmp_path, clean):
        rows = [("1", ["x" * 2**20, *self.FIVE], "u"), ("2", ["y" * 2**20, *self.FIVE[1:]], "u")]
        report = clean(rows, Rules(least_count=1))
        assert report["changed"] == {"too_long": 2}
        assert report["tags"] == 5
        assert [row["tags"] for row in kept(tmp_path)] == [list(self.FIVE)]

    def test_repeated_tags_stay_as_listed_and_alphabetical_is_after_normalising(self, tmp_path, clean):
        rows = [("1", ["b", "b", "B", "a", "c"], "u"), ("2", ["b", "a", "b", "c", "b"], "u")]
        assert clean(rows, Rules(least_count=1))["kept"] == 2  # three different tags cannot share more than three
        assert Dictionary.read(tmp_path / "kept.tags.csv") == Dictionary(("b", "a", "c"), (6, 2, 2))
        rows = [("1", ["apple", "Banana", " cherry", "date", "elder"], "u"), ("2", ["a", "a", "a", "b", "c"], "u")]
        assert clean(rows)["dropped"]["alphabetical"] == 2

    def test_numbers_as_users_text_as_tags_and_other_names_of_columns(self, tmp_path):
        table = pa.table({"url": ["1", "2"], "words": ["e, d; c|b,a", "d,e,c,b,z"], "owner": [7, 7]})
        pq.write_table(table, tmp_path / "c.parquet")
        names = ColumnNames("url", "words", "owner")
        assert cleaned(tmp_path / "c.parquet", tmp_path, columns=names)["dropped"]["similar"] == 1
        with pytest.raises(DataError, match=r"has no column 'image', only 'url', 'words', 'owner'.*--columns"):
            cleaned(tmp_path / "c.parquet", tmp_path)

    def test_nothing_to_clean(self, tmp_path, clean):
        with pytest.raises(DataError, match="has no rows"):
            clean([])
        with pytest.raises(DataError, match="there is no corpus"):
            cleaned(tmp_path / "none.parquet", tmp_path)
        (tmp_path / "bad.parquet").write_bytes(b"PAR1 nonsense PAR1")
        with pytest.raises(DataError, match=r"bad.parquet is damaged"):
            cleaned(tmp_path / "bad.parquet", tmp_path)
        assert not (tmp_path / "kept.parquet").exists()

    def test_where_it_is_not_written_and_rules_that_make_no_sense(self, tmp_path):
        for wrong in ({"against": "all"}, {"overlap": 5}, {"first": 30}):
            with pytest.raises(DataError):
                Rules(**wrong)
        with pytest.raises(DataError, match=r"end in .parquet"):
            CleaningRun(tmp_path / "c.parquet", tmp_path / "kept.csv")
        with pytest.raises(DataError, match="is the corpus itself"):
            CleaningRun(tmp_path / "c.parquet", tmp_path / "." / "c.parquet")

    def test_one_run_at_a_time(self, tmp_path, clean):
        lock = Lock(tmp_path / ".kept.work")
        lock.take()
        with pytest.raises(ExciteError, match="another run is writing"):
            clean([("1", self.FIVE, "u")])
        lock.release()
        assert clean([("1", self.FIVE, "u")])["kept"] == 1

    def test_a_full_disk(self, monkeypatch, clean):
        monkeypatch.setattr(cleaning, "CorpusSurvey", full)
        with pytest.raises(ExciteError, match="No space left on device; has the disk room"):
            clean([("1", self.FIVE, "u")])
        with pytest.raises(ExciteError, match=r"cannot count the tags: .*nowhere"), database() as tables:
            tables.execute("FROM nowhere")


class TestGenerating:
    def test_the_same_seed_gives_the_same_corpus(self, made, tmp_path):
        list(generate(WANTED, tmp_path))
        for name in (CORPUS, TRUTH, COUNTS):
            assert (tmp_path / name).read_bytes() == (made / name).read_bytes()
        list(generate(replace(WANTED, seed=1), tmp_path))
        assert (tmp_path / CORPUS).read_bytes() != (made / CORPUS).read_bytes()

    def test_tags_follow_zipfs_law_and_too_few_marks_are_refused(self, tmp_path):
        with pytest.raises(DataError, match="give more marks"):
            list(generate(replace(WANTED, marks=100), tmp_path))
        assert not list(tmp_path.iterdir())
        list(generate(CorpusSpec(2000, tags=3000, marks=2000), tmp_path))
        found = Dictionary.read(tmp_path / COUNTS)
        pairs = zip(found.tags, found.counts, strict=True)
        counts = np.array([count for tag, count in pairs if not tag.startswith("a0")])[50:500]
        slope = np.polyfit(np.log(np.arange(50, 50 + len(counts))), np.log(counts), 1)[0]
        assert slope == pytest.approx(-1, abs=0.15)


def full(*_):
    raise OSError(28, "No space left on device")


class TestWritingRowGroups:
    """A Parquet file written batch by batch: complete or missing, also with several writers."""

    def batch(self, *tags):
        return pa.record_batch({"tag": list(tags)})

    def test_two_at_once_do_not_meet(self, tmp_path):
        path, names = tmp_path / "a.parquet", self.batch("x").schema
        with row_group_writer(path, names) as first:
            first.add(self.batch("sea"))
            with row_group_writer(path, names) as second:
                second.add(self.batch("sky", "sun"))
            assert pq.read_table(path)["tag"].to_pylist() == ["sky", "sun"]
            first.add(self.batch("sand"))
        assert pq.read_table(path)["tag"].to_pylist() == ["sea", "sand"]
        assert list(tmp_path.iterdir()) == [path]

    @pytest.mark.parametrize("rows", [1, 1000])
    @pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
    def test_a_failure_leaves_the_old_file(self, tmp_path, rows, error):
        """At a row group, or at the very end: one clear error, and nothing is left."""

        def fail(*_):
            raise error

        path = tmp_path / "a.parquet"
        said = r"cannot write '.*a\.parquet': No space left on device; is there room|^$"
        for kind, tag in ((nullcontext(), "old"), (pytest.raises((ExciteError, KeyboardInterrupt), match=said), "new")):
            with kind, row_group_writer(path, self.batch("x").schema, rows) as file:
                if tag == "new":
                    file.writer.write_table = fail
                file.add(self.batch(tag))
        assert pq.read_table(path)["tag"].to_pylist() == ["old"]
        assert list(tmp_path.iterdir()) == [path]

"""A cleaning follows the rules exactly, whatever the format of the corpus and the executor."""

import json
import pickle
from contextlib import contextmanager
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
from excite.io.locks import Lock
from excite.jobs import Executor
from excite.tags.cleaning import steps
from excite.tags.cleaning.rules import RULES as NAMES
from excite.tags.cleaning.rules import CorpusSurvey, Rules
from excite.tags.cleaning.run import CleaningRun, variants_of
from excite.tags.corpus import ColumnNames, schema
from excite.tags.database import database
from excite.tags.dictionary import Dictionary, TagNormaliser

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


def write(records, path, rows=1500):
    columns = [list(column) for column in zip(*records, strict=True)] or [[], [], []]
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, schema(), strict=True)]
    pq.write_table(pa.table(arrays, schema=schema()), path, row_group_size=rows)
    return path


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


def dropped_by(rule, folder):
    rows = pq.read_table(folder / "kept.dropped.parquet").to_pylist()
    return {row["image"] for row in rows if row["rule"] == rule}


def sent(thing):
    return pickle.loads(pickle.dumps(thing))  # noqa: S301 - our own


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
    def test_of_the_generator(self, made, records, against):
        truth = pq.read_table(made / TRUTH)
        assert truth.column(against).to_pylist() == [rule for rule, _ in reference_cleaning.clean(records, against)]
        assert set(truth.column("kind").to_pylist()) == {kind.name for kind in KINDS}
        assert truth.column("seen") != truth.column("kept")

    def test_of_its_counts(self, made, records):
        truth = Dictionary.read(made / COUNTS)
        assert dict(zip(truth.tags, truth.counts, strict=True)) == reference_cleaning.counts(records)

    @pytest.mark.parametrize("against", ["seen", "kept"])
    def test_of_the_cleaning(self, made, records, tmp_path, against):
        report = cleaned(made / CORPUS, tmp_path, replace(RULES, against=against))
        expected = reference_cleaning.clean(records, against)
        assert verdicts(tmp_path, len(records)) == expected
        rules = [rule for rule, _ in expected]
        assert report["read"] == len(records)
        assert report["kept"] == rules.count("") == len(kept(tmp_path))
        assert report["dropped"] == {rule: rules.count(rule) for rule in report["dropped"]}
        assert {"few_tags", "alphabetical", "similar", "repeated_image"} <= set(report["dropped"])
        stays = [record for record, rule in zip(records, rules, strict=True) if not rule]
        expected = [(image, [reference_cleaning.tidy(tag) for tag in tags], user) for image, tags, user in stays]
        assert [tuple(row.values()) for row in kept(tmp_path)] == expected
        assert report["changed"].keys() == {"case", "spaces"}

    def test_of_the_dictionary(self, made, records, tmp_path):
        report = cleaned(made / CORPUS, tmp_path)
        counts = {tag: count for tag, count in reference_cleaning.counts(records).items() if count >= RULES.least_count}
        assert Dictionary.read(tmp_path / "kept.tags.csv") == Dictionary.of(counts)
        assert report["tags"] == len(counts)
        top = cleaned(made / CORPUS, tmp_path, replace(RULES, most_tags=7))
        assert top["tags"] == 7
        assert Dictionary.read(tmp_path / "kept.tags.csv").tags == Dictionary.of(counts).tags[:7]

    def test_rules_can_be_changed(self, made, records, tmp_path):
        rules = Rules(least_tags=8, first=4, overlap=1)
        cleaned(made / CORPUS, tmp_path, rules)
        assert verdicts(tmp_path, len(records)) == reference_cleaning.clean(records, least_tags=8, first=4, overlap=1)

    def test_rules_can_be_left_out(self, made, tmp_path):
        rules = Rules(least_tags=0, alphabetical=False, similar=False)
        report = cleaned(made / CORPUS, tmp_path, rules, columns=ColumnNames(user=None))
        assert set(report["dropped"]) == {"no_image", "repeated_image", "few_tags"}
        assert report["kept"] == WANTED.rows - report["dropped"]["repeated_image"]

    def test_what_other_choices_cost(self, made, tmp_path):
        cleaned(made / CORPUS, tmp_path, variants=True)
        told = json.loads((tmp_path / "kept.choices.json").read_text())
        assert len(told["pictures"]) == len(variants_of(RULES)) > 8
        for row, (_, rules) in zip(told["pictures"], variants_of(RULES), strict=True):
            (folder := tmp_path / row["choice"]).mkdir()
            report = cleaned(made / CORPUS, folder, rules)
            assert row["kept"] == report["kept"]
            assert row["similar"] == report["dropped"].get("similar", 0)
        counts = Dictionary.read(made / COUNTS).counts
        for row in told["dictionary"]:
            assert row["tags"] == sum(count >= row["least_count"] for count in counts)
        assert f"| as asked | {told['pictures'][0]['kept']:,} |" in (tmp_path / "kept.choices.md").read_text()


TAGS = st.lists(st.sampled_from("abcdefgh"), max_size=7)
ROWS = st.lists(
    st.tuples(st.integers(0, 40).map(str), TAGS, st.sampled_from(["ann", "bob", None])), min_size=1, max_size=30
)


@pytest.mark.parametrize("against", ["seen", "kept"])
@settings(max_examples=40, deadline=None)
@given(rows=ROWS, least=st.integers(0, 4), first=st.integers(1, 6), data=st.data())
def test_as_comparing_all_with_all(tmp_path_factory, against, rows, least, first, data):
    overlap = data.draw(st.integers(0, first - 1))
    rules = Rules(least_tags=least, first=first, overlap=overlap, against=against)
    columns = dict(zip(schema().names, map(list, zip(*rows, strict=True)), strict=True))
    store = steps.SurveyStore(tmp_path_factory.mktemp("survey"))
    images, counts = steps.survey(pa.RecordBatch.from_pydict(columns, schema()), TagNormaliser(), first)
    store.add({"key": "all", "images": images, "counts": counts})
    with database() as tables:
        merged = CorpusSurvey(tables, [store.path("all", "images")], [store.path("all", "counts")])
        verdicts, like = merged.verdicts(rules)
    found = [(["", *NAMES][rule], None if row < 0 else row) for rule, row in zip(verdicts, like.tolist(), strict=True)]
    assert found == reference_cleaning.clean(rows, against, least, first, overlap)


class TestSameWhateverTheForm:
    def same(self, folder, whole, files=FILES):
        for name in files:
            assert (folder / name).read_bytes() == (whole / name).read_bytes(), name

    def test_row_groups_and_batches(self, records, whole, tmp_path):
        cleaned(write(records, tmp_path / "small.parquet", rows=170), tmp_path)
        self.same(tmp_path, whole)

    def test_a_folder_of_parts(self, records, whole, tmp_path):
        (parts := tmp_path / "parts").mkdir()
        write(records[:1300], parts / "a.parquet")
        write(records[1300:], parts / "b.parquet")
        cleaned(parts, tmp_path)
        self.same(tmp_path, whole)

    def test_json_lines(self, records, whole, tmp_path):
        lines = [json.dumps({"user": user, "image": image, "tags": tags}) for image, tags, user in records]
        (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
        cleaned(tmp_path / "corpus.jsonl", tmp_path)
        self.same(tmp_path, whole)

    def test_others_do_the_work(self, records, whole, tmp_path):
        """As processes and Ray do it, on which tests/engines runs it: nothing is shared but what can be pickled."""

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

        cleaned(write(records, tmp_path / "corpus.parquet"), tmp_path, workers=Elsewhere())
        self.same(tmp_path, whole)
        assert len(start) == 1  # to begin anew for each step would take longer than a small corpus

    def test_stopped_anywhere(self, records, whole, tmp_path, monkeypatch):
        source = write(records, tmp_path / "corpus.parquet", rows=500)
        surveyed = []
        honest = steps.survey
        monkeypatch.setattr("excite.tags.cleaning.steps.survey", lambda *given: surveyed.append(1) or honest(*given))

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
        assert stop == 2 * len(records) // 500  # after each row group, surveyed and written
        self.same(tmp_path, whole)
        assert len(surveyed) == len(records) // 500  # each row group once

    def test_shuffling_pictures_of_different_users(self, records, whole, tmp_path):
        """The order within a user counts, and which of two images of one name comes first; nothing else does."""
        users = {user: number for number, user in enumerate(sorted({str(user) for *_, user in records}))}
        order = sorted(range(len(records)), key=lambda row: (-users[str(records[row][2])], row))
        cleaned(write([records[row] for row in order], tmp_path / "mixed.parquet"), tmp_path)
        self.same(tmp_path, whole, ["kept.tags.csv"])
        assert sorted(map(str, kept(tmp_path))) == sorted(map(str, kept(whole)))

    def test_shuffling_all(self, records, whole, tmp_path):
        unique = list({record[0]: record for record in records}.values())
        order = np.random.default_rng(0).permutation(len(unique))
        (one := tmp_path / "one").mkdir()
        (two := tmp_path / "two").mkdir()
        cleaned(write(unique, tmp_path / "unique.parquet"), one)
        cleaned(write([unique[row] for row in order], tmp_path / "mixed.parquet"), two)
        self.same(two, one, ["kept.tags.csv"])
        for rule in ("few_tags", "alphabetical"):
            dropped = [
                {
                    row["image"]
                    for row in pq.read_table(folder / "kept.dropped.parquet").to_pylist()
                    if row["rule"] == rule
                }
                for folder in (one, two)
            ]
            assert dropped[0] == dropped[1] != set()


class TestOddInput:
    FIVE = ("e", "d", "c", "b", "a")

    def test_rows_without_image_user_or_tags(self, tmp_path):
        rows = [(None, self.FIVE, "u"), ("", self.FIVE, "u"), ("1", None, "u"), ("2", [None, *self.FIVE], "u")]
        rows += [("3", self.FIVE, None), ("4", self.FIVE, None), ("2", self.FIVE, "u"), ("5", self.FIVE[::-1], "u")]
        report = cleaned(write(rows, tmp_path / "c.parquet"), tmp_path)
        assert [row["image"] for row in kept(tmp_path)] == ["2", "3", "4"]
        assert kept(tmp_path)[0]["tags"] == list(self.FIVE)
        assert report["dropped"] == {
            "no_image": 2,
            "repeated_image": 1,
            "few_tags": 1,
            "alphabetical": 1,
            "similar": 0,
        }
        assert report["without_user"] == 2

    def test_many_rows_without_tags_come_first(self, tmp_path):
        """duckdb 2.0 fails where it meets nothing but empty lists over a dictionary."""
        rows = [(f"{k}", [], "u") for k in range(4096)] + [("last", self.FIVE, "u")]
        assert cleaned(write(rows, tmp_path / "c.parquet", rows=5000), tmp_path)["dropped"]["few_tags"] == 4096

    def test_a_megabyte_tag_is_left_out(self, tmp_path):
        rows = [("1", ["x" * 2**20, *self.FIVE], "u"), ("2", ["y" * 2**20, *self.FIVE[1:]], "u")]
        report = cleaned(write(rows, tmp_path / "c.parquet"), tmp_path, Rules(least_count=1))
        assert report["changed"] == {"too_long": 2}
        assert report["tags"] == 5
        assert [row["tags"] for row in kept(tmp_path)] == [list(self.FIVE)]

    def test_repeated_tags_stay_as_listed(self, tmp_path):
        rows = [("1", ["b", "b", "B", "a", "c"], "u"), ("2", ["b", "a", "b", "c", "b"], "u")]
        report = cleaned(write(rows, tmp_path / "c.parquet"), tmp_path, Rules(least_count=1))
        assert report["kept"] == 2  # three different tags cannot share more than three
        assert Dictionary.read(tmp_path / "kept.tags.csv") == Dictionary(("b", "a", "c"), (6, 2, 2))

    def test_alphabetical_after_normalising(self, tmp_path):
        rows = [("1", ["apple", "Banana", " cherry", "date", "elder"], "u"), ("2", ["a", "a", "a", "b", "c"], "u")]
        assert cleaned(write(rows, tmp_path / "c.parquet"), tmp_path)["dropped"]["alphabetical"] == 2

    def test_numbers_as_users_and_text_as_tags(self, tmp_path):
        table = pa.table({"image": ["1", "2"], "tags": ["e, d; c|b,a", "d,e,c,b,z"], "user": [7, 7]})
        pq.write_table(table, tmp_path / "c.parquet")
        assert cleaned(tmp_path / "c.parquet", tmp_path)["dropped"]["similar"] == 1

    def test_other_names_of_columns(self, tmp_path):
        table = pa.table({"url": ["1"], "keywords": [list(self.FIVE)], "owner": ["u"]})
        pq.write_table(table, tmp_path / "c.parquet")
        names = ColumnNames("url", "keywords", "owner")
        assert cleaned(tmp_path / "c.parquet", tmp_path, columns=names)["kept"] == 1
        with pytest.raises(DataError, match=r"has no column 'image', only 'url', 'keywords', 'owner'.*--columns"):
            cleaned(tmp_path / "c.parquet", tmp_path)

    def test_nothing_to_clean(self, tmp_path):
        with pytest.raises(DataError, match="has no rows"):
            cleaned(write([], tmp_path / "c.parquet"), tmp_path)
        with pytest.raises(DataError, match="there is no corpus"):
            cleaned(tmp_path / "none.parquet", tmp_path)
        (tmp_path / "bad.parquet").write_bytes(b"PAR1 nonsense PAR1")
        with pytest.raises(DataError, match=r"bad.parquet is damaged"):
            cleaned(tmp_path / "bad.parquet", tmp_path)
        assert not (tmp_path / "kept.parquet").exists()

    def test_the_output_is_parquet(self, tmp_path):
        with pytest.raises(DataError, match=r"end in .parquet"):
            CleaningRun(tmp_path / "c.parquet", tmp_path / "kept.csv")

    def test_the_corpus_is_never_overwritten(self, tmp_path):
        with pytest.raises(DataError, match="is the corpus itself"):
            CleaningRun(tmp_path / "c.parquet", tmp_path / "." / "c.parquet")

    def test_one_run_at_a_time(self, tmp_path):
        lock = Lock(tmp_path / ".kept.work")
        lock.take()
        with pytest.raises(ExciteError, match="another run is writing"):
            cleaned(write([("1", self.FIVE, "u")], tmp_path / "c.parquet"), tmp_path)
        lock.release()
        assert cleaned(tmp_path / "c.parquet", tmp_path)["kept"] == 1

    def test_a_full_disk(self, tmp_path, monkeypatch):
        def full(*_given):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("excite.tags.cleaning.run.CorpusSurvey", full)
        with pytest.raises(ExciteError, match="No space left on device; has the disk room"):
            cleaned(write([("1", self.FIVE, "u")], tmp_path / "c.parquet"), tmp_path)

    def test_rules_that_make_no_sense(self):
        for wrong in ({"against": "all"}, {"overlap": 5}, {"first": 30}):
            with pytest.raises(DataError):
                Rules(**wrong)


class TestGenerating:
    def test_the_same_seed_gives_the_same_corpus(self, made, tmp_path):
        list(generate(WANTED, tmp_path))
        for name in (CORPUS, TRUTH, COUNTS):
            assert (tmp_path / name).read_bytes() == (made / name).read_bytes()
        list(generate(replace(WANTED, seed=1), tmp_path))
        assert (tmp_path / CORPUS).read_bytes() != (made / CORPUS).read_bytes()

    def test_tags_follow_zipfs_law(self, tmp_path):
        list(generate(CorpusSpec(2000, tags=3000, marks=2000), tmp_path))
        counts = np.array([count for tag, count in _counts(tmp_path) if not tag.startswith("a0")])[50:500]
        slope = np.polyfit(np.log(np.arange(50, 50 + len(counts))), np.log(counts), 1)[0]
        assert slope == pytest.approx(-1, abs=0.15)

    def test_too_few_marks(self, tmp_path):
        with pytest.raises(DataError, match="give more marks"):
            list(generate(replace(WANTED, marks=100), tmp_path))
        assert not list(tmp_path.iterdir())


def _counts(folder):
    found = Dictionary.read(folder / COUNTS)
    return list(zip(found.tags, found.counts, strict=True))

"""Files of our own are replaced, all others are left alone."""

import json
import os
from pathlib import Path

import pytest

from excite.autolabel.files import OutputFolder, open_own_results
from excite.errors import ExciteError


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def photo(tmp_path):
    path = tmp_path / "photo.jpg"
    path.write_bytes(b"pixels")
    return path


@pytest.fixture
def no_links(monkeypatch):
    """A disk on which there are no symbolic links."""

    def refuse(*_):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "symlink_to", refuse)


def test_written_and_replaced_by_later_runs(out):
    for content in (b"one", b"two", b"two", b"one"):
        OutputFolder(out, "coco").write({"a/b.txt": content})
        assert (out / "a/b.txt").read_bytes() == content
    assert len((out / "written.jsonl").read_text().splitlines()) == 2
    os.utime(out / "a/b.txt", ns=(5, 5))
    files = OutputFolder(out, "coco")
    for _ in range(2):
        files.write({"a/b.txt": b"one"})
    assert (out / "a/b.txt").stat().st_mtime_ns == 5, "what is right is not written again"


@pytest.mark.parametrize("theirs", [b"theirs", b"", b"ours"])
def test_files_of_others_are_left_alone(out, theirs):
    """Even if they hold just what was to be written: they might be changed later."""
    out.mkdir()
    (out / "b.txt").write_bytes(theirs)
    files = OutputFolder(out, "coco")
    for refuse in (files.check, files.write):
        with pytest.raises(ExciteError, match=r"b.txt' is there already and was not written by excite.*another --out"):
            refuse({"a.txt": b"ours", "b.txt": b"ours"})
    assert (out / "b.txt").read_bytes() == theirs
    assert not (out / "a.txt").exists()  # all or nothing


def test_files_that_somebody_has_corrected_are_left_alone(out):
    files = OutputFolder(out, "coco")
    files.write({"b.txt": b"ours"})
    (out / "b.txt").write_bytes(b"corrected")
    for later in (files, OutputFolder(out, "coco")):
        with pytest.raises(ExciteError, match="or was changed since"):
            later.write({"b.txt": b"ours, too"})
    assert (out / "b.txt").read_bytes() == b"corrected"


def test_folders_and_links_of_others_are_left_alone(out, photo):
    (out / "a.txt").mkdir(parents=True)
    (out / "b.txt").symlink_to(photo)
    (out / "c.txt").symlink_to("nowhere")
    for name in ("a.txt", "b.txt", "c.txt"):
        with pytest.raises(ExciteError, match="is there already"):
            OutputFolder(out, "coco").write({name: b"ours"})
        with pytest.raises(ExciteError, match="is there already"):
            OutputFolder(out, "coco").write({name: out / "other.jpg"})
    assert photo.read_bytes() == b"pixels"
    assert not (out / "nowhere").exists()


def test_a_kill_between_record_and_file(out):
    """Whichever of the two states the file is in, it is ours."""
    files = OutputFolder(out, "coco")
    files.write({"b.txt": b"one"})
    files._record("b.txt", "the state of a file that was never written")
    files._store.close()
    OutputFolder(out, "coco").write({"b.txt": b"two"})
    assert (out / "b.txt").read_bytes() == b"two"


class TestLinks:
    def test_made_once(self, out, photo):
        OutputFolder(out, "voc").write({"JPEGImages/1.jpg": photo})
        link = out / "JPEGImages/1.jpg"
        assert link.readlink() == photo
        before = link.lstat().st_ino
        files = OutputFolder(out, "voc")
        files.write({"JPEGImages/1.jpg": photo})
        assert link.lstat().st_ino == before
        assert files.copied == 0

    def test_the_picture_itself(self, photo):
        OutputFolder(photo.parent, "voc").write({"photo.jpg": photo})
        assert photo.read_bytes() == b"pixels"
        assert not photo.is_symlink()

    def test_copies_where_links_cannot_be_made(self, out, photo, no_links):
        for content in (b"pixels", b"other pixels"):
            photo.write_bytes(content)
            files = OutputFolder(out, "voc")
            files.write({"1.jpg": photo})
            assert files.copied == 1
            again = OutputFolder(out, "voc")
            again.write({"1.jpg": photo})
            again.write({"1.jpg": photo})
            assert again.copied == 1
            assert not (out / "1.jpg").is_symlink()
            assert (out / "1.jpg").read_bytes() == content

    def test_a_copy_never_goes_through_a_link(self, out, photo, tmp_path, request):
        other = tmp_path / "other.jpg"
        other.write_bytes(b"not to be changed")
        OutputFolder(out, "voc").write({"1.jpg": other})
        request.getfixturevalue("no_links")
        OutputFolder(out, "voc").write({"1.jpg": photo})
        assert other.read_bytes() == b"not to be changed"
        assert (out / "1.jpg").read_bytes() == b"pixels"

    def test_a_copy_of_nothing(self, out, tmp_path, no_links):
        with pytest.raises(ExciteError, match=r"cannot copy .*gone.jpg.*No such file"):
            OutputFolder(out, "voc").write({"1.jpg": tmp_path / "gone.jpg"})

    def test_whose_picture_it_is(self, out, photo, no_links):
        OutputFolder(out, "voc").write({"copy.jpg": photo})
        (out / "theirs.jpg").write_bytes(b"theirs")
        files = OutputFolder(out, "coco")  # also when another format is written now
        assert files.original(out / "copy.jpg") == out / "copy.jpg"
        assert files.original(out / "theirs.jpg") is None
        assert files.original(photo) is None


class TestWhatIsNoLongerWanted:
    def test_is_removed(self, out, photo):
        OutputFolder(out, "voc").write({"a.xml": b"a", "b.xml": b"b", "b.jpg": photo})
        files = OutputFolder(out, "voc")
        files.write({"a.xml": b"a"})
        files.remove_others({"a.xml": b"a"})
        assert sorted(path.name for path in out.iterdir()) == ["a.xml", "written.jsonl"]
        assert photo.exists()

    def test_not_what_somebody_has_changed(self, out):
        OutputFolder(out, "voc").write({"b.xml": b"b"})
        (out / "b.xml").write_bytes(b"corrected")
        OutputFolder(out, "voc").remove_others({})
        assert (out / "b.xml").read_bytes() == b"corrected"

    def test_nor_is_half_a_file_kept(self, out, monkeypatch):
        """What is left of a file whose writer was killed, under the names that the writer really gives."""
        monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)
        monkeypatch.setattr(Path, "replace", lambda *_: None)
        for _ in range(5):
            OutputFolder(out, "voc").write({"Annotations/b.xml": b"b"})
        monkeypatch.undo()
        assert len(list((out / "Annotations").iterdir())) == 5
        (out / "Annotations/.mine.tmp").touch()
        OutputFolder(out, "voc").remove_others({})
        assert [path.name for path in (out / "Annotations").iterdir()] == [".mine.tmp"]


class TestLedgers:
    LINE = json.dumps({"key": "k", "image": "a.jpg"}) + "\n"

    @pytest.mark.parametrize("content", ["", LINE, LINE + "damaged", LINE[:-1], LINE[:3], '{"key": "cut off'])
    def test_our_own(self, tmp_path, content):
        path = tmp_path / "records.jsonl"
        path.write_text(content)
        assert set(open_own_results(path, ["image"]).read()) <= {"k"}

    @pytest.mark.parametrize("content", ['{"key": "k", "other": 1}\n', "my notes\n", "my notes", "[1]\n", "\n" + LINE])
    def test_not_those_of_others(self, tmp_path, content):
        """To read them would drop lines."""
        path = tmp_path / "records.jsonl"
        path.write_text(content)
        with pytest.raises(ExciteError, match=r"records.jsonl' is there already.* choose another --out"):
            open_own_results(path, ["image"])
        assert path.read_text() == content

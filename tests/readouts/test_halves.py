"""Files that nobody will finish are removed by whoever writes next; those of others who still write are not."""

import os
from pathlib import Path

import pytest

from excite.io import files as halves
from excite.io.files import half_file, save_text, sweep, sweep_once
from excite.io.locks import locked


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def abandoned(tmp_path):
    """What a killed process leaves: its lock ended with it."""
    path = tmp_path / f".{'b' * 32}.tmp"
    path.write_bytes(b"half")
    return path


def test_the_next_to_write_sweeps(abandoned):
    save_text("whole", abandoned.with_name("b.txt"))
    assert names(abandoned.parent) == ["b.txt"]


def test_a_folder_is_looked_through_once(abandoned):
    sweep_once(abandoned.parent)
    assert names(abandoned.parent) == []
    abandoned.write_bytes(b"another")
    sweep_once(abandoned.parent)
    assert names(abandoned.parent) == [abandoned.name]


def test_what_somebody_is_writing_stays(tmp_path):
    with half_file(tmp_path / "a.txt") as (path, file):
        sweep(tmp_path)
        assert path.exists()
        file.close()  # and until it is moved
        sweep(tmp_path)
        assert path.exists()
    assert names(tmp_path) == []


def test_other_names_and_folders_stay(tmp_path):
    (tmp_path / ".mine.tmp").write_text("mine")
    (tmp_path / f".{'0' * 32}.tmp").mkdir()
    sweep(tmp_path)
    assert len(names(tmp_path)) == 2


def test_a_link_half_made_goes(tmp_path):
    (tmp_path / f".{'a' * 32}.tmp").symlink_to("nowhere")
    sweep(tmp_path)
    assert names(tmp_path) == []


def test_swept_between_its_making_and_its_lock(tmp_path, monkeypatch):
    """It is made again under another name."""
    seen = []

    def slowly(file, *, wait=False):
        if wait and not seen:
            seen.append(Path(file.name))
            sweep(tmp_path)
        return locked(file, wait=wait)

    monkeypatch.setattr(halves, "locked", slowly)
    with half_file(tmp_path / "a.txt") as (path, _):
        assert path.exists()
        assert path != seen[0]
        assert not seen[0].exists()


def test_a_lock_ends_with_its_file(tmp_path):
    (tmp_path / "a").write_text("")
    with (tmp_path / "a").open("rb") as first:
        assert locked(first) is True
        with (tmp_path / "a").open("rb") as second:
            assert locked(second) is False
            first.close()
            assert locked(second) is True


def test_where_there_are_no_locks(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    os.close(writing)
    assert locked(writing) is None  # no file at all: as a file system would refuse it

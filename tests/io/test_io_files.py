"""Atomic writes, their temporary files, and locks."""

import json
import os
import stat
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from excite.errors import ExciteError
from excite.io import files as io_files
from excite.io.files import (
    atomic_write,
    locked,
    remove_leftovers,
)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


class Failing(Exception):
    pass


def half(error):
    """A write that fails half-way."""

    def write(file):
        file.write(b"half")
        file.flush()
        raise error

    return write


class TestAtomicWrite:
    def test_the_old_file_is_there_until_the_new_one_is_whole(self, tmp_path):
        (tmp_path / "a.txt").write_bytes(b"old")

        def write(file):
            file.write(b"new")
            file.flush()
            assert (tmp_path / "a.txt").read_bytes() == b"old"

        assert atomic_write(tmp_path / "a.txt", write) == tmp_path / "a.txt"
        assert (tmp_path / "a.txt").read_bytes() == b"new"
        assert names(tmp_path) == ["a.txt"]

    @pytest.mark.parametrize("moved", [False, True])
    @pytest.mark.parametrize(
        "error", [Failing(), KeyboardInterrupt(), SystemExit(), MemoryError(), OSError(28, "No space left on device")]
    )
    def test_failure_keeps_the_old_file(self, tmp_path, monkeypatch, error, moved):
        """Half-way, or when the whole file is moved to its place."""

        def refuse(*_):
            raise error

        (tmp_path / "a.txt").write_bytes(b"old")
        if moved:
            monkeypatch.setattr(Path, "replace", refuse)
        said = (
            r"cannot write '.*a\.txt': No space left on device; .* has it room" if isinstance(error, OSError) else None
        )
        with pytest.raises(ExciteError if said else type(error), match=said):
            atomic_write(tmp_path / "a.txt", (lambda file: None) if moved else half(error))
        assert (tmp_path / "a.txt").read_bytes() == b"old"
        assert names(tmp_path) == ["a.txt"]

    def test_devices_and_folders_are_not_replaced(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        for path in (tmp_path / "pipe", tmp_path):
            with pytest.raises(ExciteError, match="it is a folder or a device"):
                atomic_write(path, lambda file: None)
        with pytest.raises(ExciteError, match="File name too long"):
            atomic_write(tmp_path / ("a" * 256), lambda file: None)
        assert names(tmp_path) == ["pipe"]
        assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)

    @pytest.mark.parametrize("mode", [0o555, 0o000])
    def test_folder_without_permission(self, mode):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "closed"
            folder.mkdir()
            Path(name).chmod(0o755)
            folder.chmod(mode)
            root = os.geteuid() == 0
            if root:
                os.seteuid(65534)  # root may write everywhere
            try:
                with pytest.raises(ExciteError, match="Permission denied; is the folder writable"):
                    atomic_write(folder / "a.txt", lambda file: None)
            finally:
                if root:
                    os.seteuid(0)
                folder.chmod(0o755)
            assert names(folder) == []

    def test_links_are_followed(self, tmp_path):
        (tmp_path / "real.txt").write_bytes(b"old")
        (tmp_path / "link.txt").symlink_to("real.txt")
        atomic_write(tmp_path / "link.txt", lambda file: file.write(b"new"))
        assert (tmp_path / "link.txt").is_symlink()
        assert (tmp_path / "real.txt").read_bytes() == b"new"

    def test_permissions(self, tmp_path):
        """A new file is as readable as any other; a replaced one stays as it was."""
        before = os.umask(0o022)
        try:
            atomic_write(tmp_path / "a.txt", lambda file: None)
            assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o644
            (tmp_path / "a.txt").chmod(0o660)
            atomic_write(tmp_path / "a.txt", lambda file: None)
            assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o660
        finally:
            os.umask(before)


def test_arrays_and_tensors_come_back(tmp_path):
    path = tmp_path / "a.npy"
    for kind in (np.float16, np.float32, np.float64, np.int64, np.bool_):
        array = np.arange(6).reshape(2, 3).astype(kind)
        again = np.load(io_files.save_npy(array, path))
        assert again.dtype == array.dtype
        np.testing.assert_array_equal(again, array)
    assert np.load(io_files.save_npy(torch.ones(2, 3, requires_grad=True), path)).tolist() == [[1, 1, 1], [1, 1, 1]]
    assert np.load(io_files.save_npy(torch.full((2,), 0.5, dtype=torch.bfloat16), path)).dtype == np.float32


NOT_FINITE = [float("nan"), [float("inf")], {"a": object()}, {"a": {1, 2}}, torch.ones(1)]


@pytest.mark.parametrize(
    ("save", "value", "said"),
    [
        (io_files.save_png, Image.new("HSV", (2, 2)), "cannot write"),
        (io_files.save_npy, np.array([{}]), "Python objects"),
        *((io_files.save_json, value, r"cannot write '.*a\.txt': .*; use finite numbers") for value in NOT_FINITE),
    ],
)
def test_what_the_format_cannot_hold(tmp_path, save, value, said):
    (tmp_path / "a.txt").write_text("old")
    with pytest.raises(ExciteError, match=said):
        save(value, tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@settings(deadline=None, max_examples=30)
@given(json_values)
def test_json_comes_back(value):
    with tempfile.TemporaryDirectory() as folder:
        path = io_files.save_json(value, Path(folder) / "a.json")
        assert json.loads(path.read_text(encoding="utf-8")) == value


def test_json_is_laid_out_in_lines_and_holds_bytes_of_odd_file_names(tmp_path):
    path = io_files.save_json({"concept": "Käse", "values": [[1, 2], [3, 4]]}, tmp_path / "a.json")
    assert path.read_text(encoding="utf-8") == '{\n  "concept": "Käse",\n  "values": [[1, 2], [3, 4]]\n}\n'
    io_files.save_json({"file": "\udcff.png"}, path)
    assert json.loads(path.read_text(encoding="utf-8")) == {"file": "\udcff.png"}


@pytest.fixture
def abandoned(tmp_path):
    """The temporary file of a killed process: its lock ended with it."""
    path = tmp_path / f".{'b' * 32}.tmp"
    path.write_bytes(b"half")
    return path


def test_the_next_write_removes_leftovers(abandoned):
    io_files.save_text("whole", abandoned.with_name("b.txt"))
    assert names(abandoned.parent) == ["b.txt"]


def test_a_folder_is_cleaned_once(abandoned):
    io_files.remove_leftovers_once(abandoned.parent)
    assert names(abandoned.parent) == []
    abandoned.write_bytes(b"another")
    io_files.remove_leftovers_once(abandoned.parent)
    assert names(abandoned.parent) == [abandoned.name]


def test_a_file_being_written_stays(tmp_path):
    with io_files.temporary_file(tmp_path / "a.txt") as (path, file):
        remove_leftovers(tmp_path)
        assert path.exists()
        file.close()  # and until it is moved
        remove_leftovers(tmp_path)
        assert path.exists()
    assert names(tmp_path) == []


def test_other_names_and_folders_stay_and_a_temporary_link_goes(tmp_path):
    (tmp_path / ".mine.tmp").write_text("mine")
    (tmp_path / f".{'0' * 32}.tmp").mkdir()
    (tmp_path / f".{'a' * 32}.tmp").symlink_to("nowhere")
    remove_leftovers(tmp_path)
    assert names(tmp_path) == [f".{'0' * 32}.tmp", ".mine.tmp"]


def test_removed_before_it_is_locked(tmp_path, monkeypatch):
    """It is made again under another name."""
    seen = []

    def slowly(file, *, wait=False):
        if wait and not seen:
            seen.append(Path(file.name))
            remove_leftovers(tmp_path)
        return locked(file, wait=wait)

    monkeypatch.setattr(io_files, "locked", slowly)
    with io_files.temporary_file(tmp_path / "a.txt") as (path, _):
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


def test_without_locks(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    os.close(writing)
    assert locked(writing) is None  # a closed descriptor, as a file system without locks

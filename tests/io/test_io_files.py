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
    remove_leftovers_once,
    save_json,
    save_npy,
    save_png,
    save_text,
    temporary_file,
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
    def test_whole(self, tmp_path):
        assert atomic_write(tmp_path / "a.txt", lambda file: file.write(b"whole")) == tmp_path / "a.txt"
        assert (tmp_path / "a.txt").read_bytes() == b"whole"
        assert names(tmp_path) == ["a.txt"]

    @pytest.mark.parametrize("error", [Failing(), KeyboardInterrupt(), SystemExit(), MemoryError()])
    def test_failure_keeps_the_old_file(self, tmp_path, error):
        (tmp_path / "a.txt").write_bytes(b"old")
        with pytest.raises(type(error)):
            atomic_write(tmp_path / "a.txt", half(error))
        assert (tmp_path / "a.txt").read_bytes() == b"old"
        assert names(tmp_path) == ["a.txt"]

    def test_full_disk(self, tmp_path):
        (tmp_path / "a.txt").write_bytes(b"old")
        with pytest.raises(ExciteError, match=r"cannot write '.*a\.txt': No space left on device; .* has it room"):
            atomic_write(tmp_path / "a.txt", half(OSError(28, "No space left on device")))
        assert (tmp_path / "a.txt").read_bytes() == b"old"
        assert names(tmp_path) == ["a.txt"]

    def test_the_old_file_is_there_until_the_new_one_is_whole(self, tmp_path):
        (tmp_path / "a.txt").write_bytes(b"old")

        def write(file):
            file.write(b"new")
            file.flush()
            assert (tmp_path / "a.txt").read_bytes() == b"old"

        atomic_write(tmp_path / "a.txt", write)
        assert (tmp_path / "a.txt").read_bytes() == b"new"

    def test_failing_move(self, tmp_path, monkeypatch):
        (tmp_path / "a.txt").write_bytes(b"old")

        def refuse(self, target):
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(Path, "replace", refuse)
        with pytest.raises(ExciteError, match="Input/output error"):
            atomic_write(tmp_path / "a.txt", lambda file: file.write(b"new"))
        assert (tmp_path / "a.txt").read_bytes() == b"old"
        assert names(tmp_path) == ["a.txt"]

    def test_a_folder_in_place_of_the_file(self, tmp_path):
        with pytest.raises(ExciteError, match="it is a folder or a device"):
            atomic_write(tmp_path, lambda file: None)

    def test_devices_are_not_replaced(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ExciteError, match="it is a folder or a device"):
            atomic_write(tmp_path / "pipe", lambda file: None)
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

    def test_a_name_too_long(self, tmp_path):
        with pytest.raises(ExciteError, match="File name too long"):
            atomic_write(tmp_path / ("a" * 256), lambda file: None)
        assert names(tmp_path) == []


class TestPng:
    def test_a_mode_png_does_not_know(self, tmp_path):
        with pytest.raises(ExciteError, match="cannot write"):
            save_png(Image.new("HSV", (2, 2)), tmp_path / "a.png")
        assert names(tmp_path) == []


class TestNpy:
    @pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int64, np.bool_])
    def test_round_trip(self, tmp_path, kind):
        array = np.arange(6).reshape(2, 3).astype(kind)
        save_npy(array, tmp_path / "a.npy")
        again = np.load(tmp_path / "a.npy")
        assert again.dtype == array.dtype
        np.testing.assert_array_equal(again, array)

    def test_tensors(self, tmp_path):
        save_npy(torch.ones(2, 3, requires_grad=True), tmp_path / "a.npy")
        assert np.load(tmp_path / "a.npy").tolist() == [[1, 1, 1], [1, 1, 1]]
        save_npy(torch.full((2,), 0.5, dtype=torch.bfloat16), tmp_path / "a.npy")
        assert np.load(tmp_path / "a.npy").dtype == np.float32

    def test_objects(self, tmp_path):
        with pytest.raises(ExciteError, match="Python objects"):
            save_npy(np.array([{}]), tmp_path / "a.npy")
        assert names(tmp_path) == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


class TestJson:
    def test_layout(self, tmp_path):
        save_json({"concept": "Käse", "values": [[1, 2], [3, 4]]}, tmp_path / "a.json")
        expected = '{\n  "concept": "Käse",\n  "values": [[1, 2], [3, 4]]\n}\n'
        assert (tmp_path / "a.json").read_text(encoding="utf-8") == expected

    @settings(deadline=None, max_examples=30)
    @given(json_values)
    def test_round_trip(self, value):
        with tempfile.TemporaryDirectory() as folder:
            path = save_json(value, Path(folder) / "a.json")
            assert json.loads(path.read_text(encoding="utf-8")) == value

    def test_bytes_of_odd_file_names(self, tmp_path):
        save_json({"file": "\udcff.png"}, tmp_path / "a.json")
        assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == {"file": "\udcff.png"}

    @pytest.mark.parametrize("value", [float("nan"), [float("inf")], {"a": object()}, {"a": {1, 2}}, torch.ones(1)])
    def test_values_outside_of_json(self, tmp_path, value):
        (tmp_path / "a.json").write_text("old")
        with pytest.raises(ExciteError, match=r"cannot write '.*a\.json': .*; use finite numbers"):
            save_json(value, tmp_path / "a.json")
        assert (tmp_path / "a.json").read_text() == "old"
        assert names(tmp_path) == ["a.json"]


@pytest.fixture
def abandoned(tmp_path):
    """The temporary file of a killed process: its lock ended with it."""
    path = tmp_path / f".{'b' * 32}.tmp"
    path.write_bytes(b"half")
    return path


def test_the_next_write_removes_leftovers(abandoned):
    save_text("whole", abandoned.with_name("b.txt"))
    assert names(abandoned.parent) == ["b.txt"]


def test_a_folder_is_cleaned_once(abandoned):
    remove_leftovers_once(abandoned.parent)
    assert names(abandoned.parent) == []
    abandoned.write_bytes(b"another")
    remove_leftovers_once(abandoned.parent)
    assert names(abandoned.parent) == [abandoned.name]


def test_a_file_being_written_stays(tmp_path):
    with temporary_file(tmp_path / "a.txt") as (path, file):
        remove_leftovers(tmp_path)
        assert path.exists()
        file.close()  # and until it is moved
        remove_leftovers(tmp_path)
        assert path.exists()
    assert names(tmp_path) == []


def test_other_names_and_folders_stay(tmp_path):
    (tmp_path / ".mine.tmp").write_text("mine")
    (tmp_path / f".{'0' * 32}.tmp").mkdir()
    remove_leftovers(tmp_path)
    assert len(names(tmp_path)) == 2


def test_a_temporary_link_goes(tmp_path):
    (tmp_path / f".{'a' * 32}.tmp").symlink_to("nowhere")
    remove_leftovers(tmp_path)
    assert names(tmp_path) == []


def test_removed_before_it_is_locked(tmp_path, monkeypatch):
    """It is made again under another name."""
    seen = []

    def slowly(file, *, wait=False):
        if wait and not seen:
            seen.append(Path(file.name))
            remove_leftovers(tmp_path)
        return locked(file, wait=wait)

    monkeypatch.setattr(io_files, "locked", slowly)
    with temporary_file(tmp_path / "a.txt") as (path, _):
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

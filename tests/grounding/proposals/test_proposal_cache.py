"""Proposals on disk: the same as new ones, whatever happens to the files."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image

from excite.errors import ProposalError
from excite.grounding.proposals import Cached, Hierarchy, Proposals, find_proposer

PICTURE = Image.fromarray(np.random.default_rng(3).integers(0, 255, (40, 60, 3), np.uint8))


@dataclass(frozen=True)
class Counting:
    """A proposer whose every call can be told from the next."""

    count: int = 2
    calls: ClassVar[list] = []
    name: ClassVar[str] = "counting"
    version: ClassVar[int] = 1

    def __call__(self, picture):
        self.calls.append(picture)
        boxes = np.array([[0, 0, 2, 2], [1, 1, 3, 3]], np.float32)[: self.count]
        return Proposals(picture.size, boxes, np.full(len(boxes), -len(self.calls), np.float32))


@pytest.fixture
def counting():
    Counting.calls.clear()
    return Counting()


def files_in(folder):
    return sorted(folder.rglob("*.npz"))


def same(one, two):
    arrays, others = one.arrays(), two.arrays()
    return arrays.keys() == others.keys() and all(np.array_equal(arrays[name], others[name]) for name in arrays)


@pytest.mark.parametrize("size", [(60, 40), (641, 427), (1, 1), (1000, 9)])
def test_read_as_it_was_made(tmp_path, size):
    """Segments are kept in as many pixels as they were found in."""
    picture = PICTURE.resize(size)
    made = Hierarchy(count=40)(picture)
    source = Cached(Hierarchy(count=40), tmp_path)
    assert same(source.of(picture, "a"), made)
    read = source.of(picture, "a")
    assert same(read, made)
    assert read.segments.parts.dtype == np.int32
    assert (source.made, source.read, source.damaged) == (1, 1, 0)
    (file,) = files_in(tmp_path)
    with np.load(file) as arrays:
        assert max(arrays["parts"].shape) <= 256
        assert arrays["parts"].dtype == np.int16
    assert file.stat().st_size < 100_000


def test_what_a_picture_is_known_by(tmp_path, counting):
    source = Cached(counting, tmp_path)
    source.of(PICTURE, "a")
    source.of(PICTURE.copy(), "elsewhere/b")
    assert len(counting.calls) == 1
    changed = PICTURE.copy()
    changed.putpixel((0, 0), (1, 2, 3))
    source.of(changed, "a")
    source.of(PICTURE.transpose(Image.Transpose.TRANSPOSE).transpose(Image.Transpose.TRANSPOSE), "a")
    assert len(counting.calls) == 2
    flat = Image.new("RGB", (4, 6))
    source.of(flat, "c")
    source.of(flat.resize((6, 4)), "c")  # the same bytes
    assert len(counting.calls) == 4


def test_other_settings_and_versions(tmp_path, counting, monkeypatch):
    Cached(counting, tmp_path).of(PICTURE, "a")
    assert len(Cached(replace(counting, count=1), tmp_path).of(PICTURE, "a")) == 1
    monkeypatch.setattr(Counting, "version", 2)
    assert Cached(counting, tmp_path).of(PICTURE, "a").scores[0] == -3
    assert len(files_in(tmp_path)) == 3
    none = Cached(replace(counting, count=0), tmp_path)
    for _ in range(2):
        with pytest.raises(ProposalError, match=r"'dark\.jpg'"):
            none.of(PICTURE, "dark.jpg")
    assert (none.made, none.read) == (1, 1)


def test_damaged_files_are_made_again(tmp_path, counting):
    source = Cached(counting, tmp_path)
    boxes = source.of(PICTURE, "a").boxes
    (file,) = files_in(tmp_path)
    whole = file.read_bytes()
    places = range(30, len(whole), max(1, len(whole) // 40))
    flipped = [whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :] for place in places]
    for number, damage in enumerate([b"", whole[: len(whole) // 2], b"no archive at all", *flipped]):
        file.write_bytes(damage)
        assert np.array_equal(source.of(PICTURE, "a").boxes, boxes), number
    assert source.damaged > 10
    assert source.made == source.damaged + 1
    file.write_bytes(b"damage")
    source.of(PICTURE, "a")
    assert Cached(counting, tmp_path).of(PICTURE, "a").scores[0] == -len(counting.calls), "it was written again"


def use(folder):
    source = Cached(Counting(), folder)
    found = [source.of(Image.new("RGB", (8, 8), (number, 0, 0)), "a") for number in range(15)]
    return source.damaged, [proposals.boxes.tolist() for proposals in found]


def test_several_share_a_folder(tmp_path):
    """Threads, which meet in the folder as processes do."""
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(use, [tmp_path] * 4))
    assert len(files_in(tmp_path)) == 15
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".npz"]
    assert all(answer == (0, answers[0][1]) for answer in answers)


def test_boxes_alone(tmp_path):
    made, read = (find_proposer("edge-boxes", cache=tmp_path).of(PICTURE.resize((333, 100)), "a") for _ in range(2))
    assert len(made) > 5
    assert same(made, read)

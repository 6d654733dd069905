"""Proposals: candidate regions of an image, the interfaces of their sources, and checks of those from files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from excite.errors import DataError, ProposalError

Array = NDArray[Any]

NARROWEST = 16  # a very wide or tall image keeps so many pixels across, if it has them: it may well show something
MOST = 10_000  # EdgeBoxes' authors write so many; all are compared with all, which more would not have memory for
MOST_PIXELS = 2**25  # of all proposals of an image together: a few bytes of a file can stand for a mask of any size
BEYOND = 1.0  # boxes may be rounded beyond the image by so many pixels; more, and they are of another image


@dataclass(frozen=True, eq=False)
class Segments:
    """Regions as sets of small disjoint parts, so that sums over thousands of regions need each pixel once.

    Attributes:
        parts: The part of each pixel [height, width], from 0; -1 in no region.
        starts: The offset of each region's parts in ``members`` [regions + 1]; the last is their number.
        members: The parts of all regions, concatenated.
    """

    parts: NDArray[np.int32]
    starts: NDArray[np.int64]
    members: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.starts) - 1


@dataclass(frozen=True, eq=False)
class Proposals:
    """Candidate regions of one image, best first by the proposer's own scores.

    Attributes:
        size: Width and height of the image.
        boxes: Half-open (x0, y0, x1, y1) in pixels of the image [n, 4], float32.
        scores: The proposer's own scores, higher is better [n], float32.
        segments: The regions themselves; None where the boxes are the regions.
    """

    size: tuple[int, int]
    boxes: NDArray[np.float32]
    scores: NDArray[np.float32]
    segments: Segments | None = None

    def __post_init__(self) -> None:
        count = len(self.boxes)
        whole = self.boxes.shape == (count, 4) and self.scores.shape == (count,)
        if not whole or (self.segments is not None and len(self.segments) != count):
            raise DataError(
                f"proposals do not fit together: {self.boxes.shape} boxes, {self.scores.shape} scores"
                + ("" if self.segments is None else f", {len(self.segments)} segments")
            )

    def __len__(self) -> int:
        return len(self.boxes)

    def best(self, count: int) -> Proposals:
        """The first ``count``."""
        segments = self.segments
        if segments is not None:
            starts = segments.starts[: count + 1]
            segments = Segments(segments.parts, starts, segments.members[: starts[-1]])
        return Proposals(self.size, self.boxes[:count], self.scores[:count], segments)

    @property
    def nbytes(self) -> int:
        """Its memory in bytes."""
        return sum(each.nbytes for each in self.arrays().values())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The content as named arrays, for a file."""
        found: dict[str, NDArray[Any]] = {"size": np.array(self.size), "boxes": self.boxes, "scores": self.scores}
        return found if self.segments is None else found | vars(self.segments)


class Proposer(Protocol):
    """Computes proposals from an image. Its ``repr`` names all its settings."""

    @property
    def name(self) -> str:
        """As users write it."""

    @property
    def version(self) -> int:
        """Increases whenever the same image and settings give other proposals than before."""

    def __call__(self, picture: Image.Image) -> Proposals:
        """The proposals, best first."""


class Source(Protocol):
    """A source of proposals for any image: a proposer, a cache, or files."""

    def of(self, picture: Image.Image, name: str, path: Path | None = None) -> Proposals:
        """The proposals of an image, by its name in its data set (``000000123456.jpg``) and its file, if any.

        Raises:
            ProposalError: There are none for this image.
        """


@dataclass(frozen=True)
class Uncached:
    """A source that runs a proposer for each image."""

    proposer: Proposer

    def of(self, picture: Image.Image, name: str, path: Path | None = None) -> Proposals:  # noqa: ARG002 - only files need the path
        """The proposals of an image."""
        return check_any(self.proposer(picture), name)


def check_any(proposals: Proposals, name: str) -> Proposals:
    """The proposals, or a `ProposalError` if there are none."""
    if len(proposals) == 0:
        raise ProposalError(f"no regions were proposed for the image {name!r}: try other proposals.")
    return proposals


def sorted_proposals(
    size: tuple[int, int], boxes: NDArray[np.float32], scores: NDArray[np.float32], segments: Segments | None = None
) -> Proposals:
    """Proposals sorted by their scores, stable."""
    order = np.argsort(-scores, kind="stable")
    if segments is not None:
        sets = np.split(segments.members, segments.starts[1:-1]) if len(segments) else []
        segments = Segments(segments.parts, *_concatenated([sets[k] for k in order]))
    return Proposals(size, boxes[order], scores[order], segments)


# Overlapping regions as sets of disjoint parts.


def segments_of_pieces(labels: Array, regions: Sequence[Array]) -> Segments:
    """Regions that are sets of small pieces, numbered from 0: pieces of exactly the same regions become one part."""
    # a hash of each piece's set of regions: the sum, modulo 2 ** 64, of a random number for each region
    numbers = np.random.default_rng(7).integers(1, 2**64 - 1, len(regions), np.uint64)
    sums = np.zeros(int(labels.max()) + 1, np.uint64)
    for pieces, number in zip(regions, numbers, strict=True):
        sums[pieces] += number
    known, first, inverse = np.unique(sums, return_index=True, return_inverse=True)
    part = np.full(len(known), -1, np.int64)  # -1 stays for the pieces of no region
    some = np.flatnonzero(known)
    part[some[np.argsort(first[some], kind="stable")]] = np.arange(len(some))
    part_of = part[inverse]
    return Segments(part_of[labels].astype(np.int32), *_concatenated([np.unique(part_of[each]) for each in regions]))


def _concatenated(sets: Sequence[Array]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The starts and the members of sets."""
    starts = np.cumsum([0, *(len(members) for members in sets)], dtype=np.int64)
    return starts, np.concatenate([np.empty(0, np.int32), *sets]).astype(np.int32)


def segments_of_pixels(shape: tuple[int, int], regions: Sequence[Array]) -> Segments:
    """Regions from masks of an image of this height and width, given as indices of pixels, row by row."""
    return segments_of_pieces(np.arange(shape[0] * shape[1]).reshape(shape), regions)


def segment_boxes(segments: Segments) -> NDArray[np.float32]:
    """The half-open box around each region [regions, 4]."""
    if not len(segments):
        return np.zeros((0, 4), np.float32)
    boxes, starts = part_boxes(segments.parts)[segments.members], segments.starts[:-1]
    ends = np.minimum.reduceat(boxes[:, :2], starts), np.maximum.reduceat(boxes[:, 2:], starts)
    return np.concatenate(ends, axis=1).astype(np.float32)


def part_boxes(parts: Array) -> NDArray[np.int64]:
    """The half-open box around each part of an image [height, width], whose parts are numbered from 0."""
    from scipy import ndimage

    far = max(parts.shape)  # of a number that no pixel has
    places = (place or (slice(far, 0), slice(far, 0)) for place in ndimage.find_objects(parts + 1))
    return np.array([(x.start, y.start, x.stop, y.stop) for y, x in places], np.int64).reshape(-1, 4)


# Regions are found in a shrunk image, in bounded time, and enlarged to the pixels of the image itself.


def shrink(picture: Image.Image, longest: int) -> Image.Image:
    """The image in RGB, its longer side at most so many pixels; a small one stays as it is."""
    picture = picture.convert("RGB")
    size = _shrunk_size(picture.size, longest)
    return picture if size == picture.size else picture.resize(size, Image.Resampling.BILINEAR)


def _shrunk_size(size: tuple[int, int], longest: int) -> tuple[int, int]:
    factor = min(1.0, longest / max(size))
    width, height = (max(min(side, NARROWEST), round(side * factor)) for side in size)
    return width, height


def enlarge_parts(parts: Array, size: tuple[int, int]) -> NDArray[np.int32]:
    """Parts [rows, columns] of a shrunk image in an image of this width and height, by the nearest neighbour."""
    rows, columns = (_nearest(long, short) for long, short in zip(size[::-1], parts.shape, strict=True))
    return np.ascontiguousarray(parts[rows][:, columns], np.int32)


def enlarge_boxes(boxes: Array, shrunk_size: tuple[int, int], size: tuple[int, int]) -> NDArray[np.float32]:
    """Half-open boxes of a shrunk image in the full one, consistent with `enlarge_parts`."""
    made = np.empty(boxes.shape, np.float32)
    for axis, (long, short) in enumerate(zip(size, shrunk_size, strict=True)):
        made[:, axis::2] = np.searchsorted(_nearest(long, short), boxes[:, axis::2])
    return made


def shrink_parts(parts: NDArray[np.int32], longest: int) -> NDArray[np.int32]:
    """The smallest image from which `enlarge_parts` restores these parts; the parts themselves if there is none."""
    height, width = parts.shape
    columns, rows = _shrunk_size((width, height), longest)
    small = np.ascontiguousarray(parts[_nearest(rows, height)][:, _nearest(columns, width)])
    return small if np.array_equal(enlarge_parts(small, (width, height)), parts) else parts


def _nearest(count: int, of: int) -> NDArray[np.int64]:
    """For each pixel of a line, the pixel that contains its centre in the same line of another number of pixels."""
    return np.asarray((2 * np.arange(count, dtype=np.int64) + 1) * of // (2 * count))


# Checks of boxes and scores from files.


def checked_proposals(size: tuple[int, int], regions: Array | Segments, scores: Array | None) -> Proposals:
    """Proposals from boxes or segments of an image of this width and height, sorted by their scores."""
    segments = regions if isinstance(regions, Segments) else None
    boxes = segment_boxes(regions) if isinstance(regions, Segments) else checked_boxes(regions, size)
    return sorted_proposals(size, boxes, checked_scores(scores, len(boxes)), segments)


def check_count(count: int, pixels: int = 0) -> None:
    """Raise a `DataError` if one image has too many proposals, or with too many pixels, for memory and time."""
    if count > MOST:
        raise DataError(f"there are {count} proposals for one image: keep its best {MOST} at most")
    if pixels > MOST_PIXELS:
        raise DataError(f"the masks of its proposals cover more than {MOST_PIXELS} pixels: keep its best ones")


def checked_boxes(boxes: Array, size: tuple[int, int]) -> NDArray[np.float32]:
    """Half-open boxes [n, 4] within an image of this width and height, or a `DataError`."""
    if boxes.size == 0:  # nothing found, in whichever shape that was saved: MATLAB's [] is [0, 0], NumPy's [0]
        return np.zeros((0, 4), np.float32)
    if boxes.ndim != 2 or boxes.shape[1] != 4 or boxes.dtype.kind not in "iuf":
        raise DataError(f"boxes must be four numbers each, [n, 4], not {boxes.dtype.kind} {list(boxes.shape)}")
    check_count(len(boxes))
    boxes = boxes.astype(np.float64)
    if not np.isfinite(boxes).all():
        raise DataError("some corners of boxes are no finite numbers")
    width, height = size
    outside = (boxes < -BEYOND).any(axis=1) | (boxes > np.array([width, height] * 2) + BEYOND).any(axis=1)
    if outside.any():
        first = boxes[outside][0].tolist()
        raise DataError(f"box {first} is not within the image of {width} x {height} pixels: is it of another size?")
    boxes = np.clip(boxes, 0, [width, height] * 2)
    empty = (boxes[:, 2:] <= boxes[:, :2]).any(axis=1)
    if empty.any():
        raise DataError(f"box {boxes[empty][0].tolist()} has no pixels")
    return boxes.astype(np.float32)


def checked_scores(scores: Array | None, count: int) -> NDArray[np.float32]:
    """The scores of ``count`` proposals, or a `DataError`; None for falling ones, in their order."""
    if scores is None:
        return np.linspace(1, 0, count, endpoint=False, dtype=np.float32)
    if scores.dtype.kind not in "iuf" or scores.size != count or scores.ndim > 2:
        raise DataError(
            f"there must be one score for each of {count} proposals, not {scores.dtype.kind} {list(scores.shape)}"
        )
    with np.errstate(over="ignore"):  # what is beyond float32 is found below
        scores = scores.reshape(-1).astype(np.float32)
    if not np.isfinite(scores).all():
        raise DataError("some scores are no finite numbers")
    return scores

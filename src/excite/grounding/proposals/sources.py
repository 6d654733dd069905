"""Where proposals come from: made for an image, remembered on disk, or read from files that others made."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from excite.errors import DataError, ProposalError

if TYPE_CHECKING:
    from pathlib import Path

    from PIL import Image

    from excite.grounding.proposals.base import Proposals


class Proposer(Protocol):
    """Makes proposals from what an image shows. Its text (``repr``) names all its settings."""

    @property
    def name(self) -> str:
        """As users write it."""

    @property
    def version(self) -> int:
        """Counts up whenever the same image and settings give other proposals than before."""

    def __call__(self, picture: Image.Image) -> Proposals:
        """The proposals, best first."""


class Source(Protocol):
    """Gives the proposals of any image, wherever they come from."""

    def of(self, picture: Image.Image, name: str, path: Path | None = None) -> Proposals:
        """The proposals of an image.

        Args:
            picture: What it shows.
            name: What it is called in its data set, such as ``000000123456.jpg``.
            path: Its file, where there is one.

        Raises:
            ProposalError: There are none for this image.
        """


@dataclass(frozen=True)
class Uncached:
    """Proposals that are made anew each time."""

    proposer: Proposer

    def of(self, picture: Image.Image, name: str, path: Path | None = None) -> Proposals:  # noqa: ARG002 - only files need the path
        """The proposals of an image."""
        return checked(self.proposer(picture), name)


def checked(proposals: Proposals, name: str) -> Proposals:
    """The proposals, if there are any.

    Raises:
        ProposalError: There are none.

    Example:
        >>> from PIL import Image
        >>> from excite.grounding.proposals import Hierarchy
        >>> len(checked(Hierarchy()(Image.new("RGB", (8, 8))), "black.png"))
        1
    """
    if len(proposals) == 0:
        raise ProposalError(f"no regions were proposed for the image {name!r}: try other proposals.")
    return proposals


# Proposals kept on disk: segmenting an image takes a second, reading the segments some milliseconds.

FORMAT = 1
"""Counts up whenever the files change."""

LONGEST = 256
"""Segments were most likely found at this size, and need no more pixels in a file."""


class Cached:
    """Proposals that are made once for each image, and then read from a folder.

    An image is known by its pixels: a copy of it has the same proposals, a changed one has others. Other settings
    and other versions of the proposer have files of their own. Any number of processes may share a folder: a file
    is either whole or not there. A damaged one is made again.

    Attributes:
        read: How many were found in the folder.
        made: How many were not, and were made.
        damaged: How many of those had been there, but could not be read.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from excite.grounding.proposals import Hierarchy
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     source = Cached(Hierarchy(), Path(folder))
        ...     first, again = (source.of(Image.new("RGB", (8, 8)), "black.png") for _ in range(2))
        ...     source.made, source.read
        (1, 1)
    """

    def __init__(self, proposer: Proposer, folder: Path) -> None:
        self.proposer = proposer
        self.folder = folder
        self.read = self.made = self.damaged = 0

    def of(self, picture: Image.Image, name: str, path: Path | None = None) -> Proposals:  # noqa: ARG002 - the pixels tell
        """The proposals of an image."""
        place = self._place(picture)
        found = self._kept(place, picture.size)
        if found is None:
            found = self.proposer(picture)
            _keep(found, place)
            self.made += 1
        else:
            self.read += 1
        return checked(found, name)

    def _place(self, picture: Image.Image) -> Path:
        """The file of an image, by all that decides what is in it."""
        facts = [FORMAT, self.proposer.name, self.proposer.version, repr(self.proposer), picture.mode, picture.size]
        sign = hashlib.sha256(repr(facts).encode())
        sign.update(picture.tobytes())
        key = sign.hexdigest()[:40]
        return self.folder / self.proposer.name / key[:2] / f"{key[2:]}.npz"

    def _kept(self, place: Path, size: tuple[int, int]) -> Proposals | None:
        from excite.grounding.proposals.files import from_arrays, read_npz

        if not place.exists():
            return None
        try:
            return from_arrays(read_npz(place), size)
        except DataError:
            self.damaged += 1
            return None


def _keep(proposals: Proposals, place: Path) -> None:
    from excite.grounding.proposals.base import shrink_parts
    from excite.io.files import atomic_write

    arrays = proposals.arrays()
    if "parts" in arrays:
        arrays["parts"] = _narrow(shrink_parts(arrays["parts"], LONGEST))
        arrays["members"] = _narrow(arrays["members"])
    atomic_write(place, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays))


def _narrow(
    numbers: np.ndarray[tuple[int, ...], np.dtype[np.int32]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.integer]]:
    """Two bytes each where that is enough: half the file."""
    fits = numbers.size == 0 or numbers.max() <= np.iinfo(np.int16).max
    return numbers.astype(np.int16) if fits else numbers

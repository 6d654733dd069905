"""Proposals that others made: one file for each picture, or one for all."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from excite.errors import DataError, ProposalError

if TYPE_CHECKING:
    from PIL import Image

    from excite.grounding.proposals.base import Proposals
    from excite.grounding.proposals.coco_results import CocoResults

__all__ = ["ProposalFiles"]

SUFFIXES = (".npz", ".mat")


class ProposalFiles:
    """Precomputed proposals.

    * A folder: one NPZ or MAT file for each picture, called like it (``000000123456.mat`` for ``000000123456.jpg``).
      A picture's own folder within its data set may be repeated there, or left out.
    * A JSON file: COCO results of all pictures.
    * A NPZ or MAT file: the proposals of the one picture that is asked for.

    What the files hold: see `arrays`, `mat` and `coco_results` beside this module.

    Args:
        path: The folder or file.

    Raises:
        DataError: It is not there, or is no such thing.

    Example:
        >>> ProposalFiles(Path("mcg")).of(picture, "2007_000027.jpg")  # doctest: +SKIP
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._results: CocoResults | None = None
        suffix = path.suffix.lower()
        if path.is_dir():
            if not any(file.suffix.lower() in SUFFIXES for file in path.rglob("*")):
                raise DataError(f"the folder {str(path)!r} holds no proposals: there is no NPZ or MAT file in it.")
        elif not path.is_file():
            raise DataError(f"there are no proposals at {str(path)!r}: give a folder, or a JSON, NPZ or MAT file.")
        elif suffix == ".json":
            from excite.grounding.proposals.coco_results import CocoResults

            self._results = CocoResults(path)
        elif suffix not in SUFFIXES:
            raise DataError(f"cannot read proposals from {str(path)!r}: give a folder, or a JSON, NPZ or MAT file.")

    def of(self, picture: Image.Image, name: str, path: Path | None = None) -> Proposals:
        """The proposals of a picture.

        Raises:
            ProposalError: There are none for this picture.
            DataError: They are broken, or not of this picture.
        """
        file = self.path if self.path.is_file() else self._file(name)
        try:
            if self._results:
                found = self._results.proposals(name, picture.size, path.name if path else "")
            else:
                found = _read(file, picture.size)
        except DataError as error:
            raise DataError(f"the proposals for {name!r} in {str(file)!r} cannot be used: {str(error)[:300]}") from None
        if found is None or len(found) == 0:
            raise ProposalError(f"{str(file)!r} has no proposals for the picture {name!r}.")
        return found

    def _file(self, name: str) -> Path:
        """The file of a picture in a folder, never one outside of it: names come from annotations."""
        picture = PurePosixPath(name)
        leads_out = picture.is_absolute() or ".." in picture.parts
        places = [picture.stem] if leads_out else [str(picture.parent / picture.stem), picture.stem]
        for place in places:
            for suffix in SUFFIXES:
                file = self.path / f"{place}{suffix}"
                if os.path.isfile(file):  # noqa: PTH113 - Path's fails at long names
                    return file
        raise ProposalError(f"the folder {str(self.path)!r} has no proposals for the picture {name!r}.")


def _read(file: Path, size: tuple[int, int]) -> Proposals:
    if file.suffix.lower() == ".mat":
        from excite.grounding.proposals.mat import read_mat

        return read_mat(file, size)
    from excite.grounding.proposals.arrays import from_arrays, read_npz

    return from_arrays(read_npz(file), size)

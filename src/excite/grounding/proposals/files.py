"""Proposals from files: precomputed by other programs, one file for each image or one for all; and the cache."""

import json
import os
import re
import warnings
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from excite.datasets.base import parse_json, read_text
from excite.datasets.coco import Mask
from excite.errors import DataError, ProposalError
from excite.grounding.proposals import base
from excite.grounding.proposals.base import Proposals, Proposer, Segments
from excite.grounding.proposals.mat import read_mat
from excite.io.cache import fingerprint
from excite.io.files import atomic_write

Array = NDArray[Any]

SUFFIXES = (".npz", ".mat")
LARGEST = 2**28  # bytes of an image's proposals: a small file that claims more would fill all memory when unpacked
FORMAT = 1  # increases whenever the files of the cache change
LONGEST = 256  # the size at which segments were most likely found, so that a file needs no more pixels


class ProposalFiles:
    """Precomputed proposals.

    * A folder: one NPZ or MAT file for each image, called like it (``000000123456.mat`` for ``000000123456.jpg``).
      An image's own folder within its data set may be repeated there, or left out.
    * A JSON file: COCO results of all images.
    * A NPZ or MAT file: the proposals of a single image.

    The content of the files: see `read_npz`, `read_mat` and `CocoResults`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._results = CocoResults(path) if path.suffix.lower() == ".json" and path.is_file() else None
        if path.is_dir():
            if not any(file.suffix.lower() in SUFFIXES for file in path.rglob("*")):
                raise DataError(f"the folder {str(path)!r} holds no proposals: there is no NPZ or MAT file in it.")
        elif not path.is_file():
            raise DataError(f"there are no proposals at {str(path)!r}: give a folder, or a JSON, NPZ or MAT file.")
        elif self._results is None and path.suffix.lower() not in SUFFIXES:
            raise DataError(f"cannot read proposals from {str(path)!r}: give a folder, or a JSON, NPZ or MAT file.")

    def of(self, picture: Image.Image, name: str, path: Path | None = None) -> Proposals:
        """The proposals of an image; an error that names the file where they are broken, or not of this image."""
        file = self.path if self.path.is_file() else self._file(name)
        try:
            if self._results:
                found = self._results.proposals(name, picture.size, path.name if path else "")
            else:
                read = read_mat if file.suffix.lower() == ".mat" else read_npz
                found = read(file, picture.size)
        except DataError as error:
            raise DataError(f"the proposals for {name!r} in {str(file)!r} cannot be used: {str(error)[:300]}") from None
        if found is None or len(found) == 0:
            raise ProposalError(f"{str(file)!r} has no proposals for the image {name!r}.")
        return found

    def _file(self, name: str) -> Path:
        """The file of an image in a folder, never one outside of it: names come from annotations."""
        picture = PurePosixPath(name)
        leads_out = picture.is_absolute() or ".." in picture.parts
        names = [picture.stem] if leads_out else [str(picture.parent / picture.stem), picture.stem]
        for stem in names:
            for suffix in SUFFIXES:
                file = self.path / f"{stem}{suffix}"
                if os.path.isfile(file):  # noqa: PTH113 - Path's fails at long names
                    return file
        raise ProposalError(f"the folder {str(self.path)!r} has no proposals for the image {name!r}.")


# NPZ files: our own arrays, and the plain ones of other programs.


def read_npz(path: Path, size: tuple[int, int]) -> Proposals:
    """The proposals in a NPZ file, of an image of this width and height, with its checksums verified.

    The arrays are those of `Proposals.arrays` (parts of a shrunk image are enlarged), or ``boxes`` [n, 4] half-open
    (x0, y0, x1, y1), or ``masks`` [n, height, width]; the last two with ``scores`` [n] or without.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > LARGEST:
                raise DataError(f"unpacked it has more than {LARGEST >> 20} MB, which no image's proposals have")  # noqa: TRY301 - with its file
            arrays = {name.removesuffix(".npy"): _array(archive, name) for name in archive.namelist()}
    except Exception as error:  # noqa: BLE001 - zipfile and numpy raise errors of all kinds for a damaged file
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(f"cannot read {str(path)!r} as NPZ: {reason}") from None
    if "size" in arrays and (arrays["size"].shape != (2,) or arrays["size"].tolist() != list(size)):
        raise DataError(f"they are of an image of {arrays['size'].ravel()[:2].tolist()} pixels, not {list(size)}")
    regions: Array | Segments
    if "parts" in arrays:
        regions = _segments(arrays, size)
    elif "masks" in arrays:
        regions = _of_masks(arrays["masks"], size)
    elif "boxes" in arrays:
        regions = arrays["boxes"]
    else:
        there = ", ".join(sorted(arrays))[:100] or "none"
        raise DataError(f"there are no arrays 'boxes', 'masks' or 'parts', but {there}")
    return base.checked_proposals(size, regions, arrays.get("scores"))


def _array(archive: zipfile.ZipFile, name: str) -> Array:
    with archive.open(name) as file, warnings.catch_warnings(action="ignore"):  # NumPy's, about an impossible shape
        array: Array = np.lib.format.read_array(file, allow_pickle=False)
        if file.read(1):  # at its end the checksum is verified
            raise DataError(f"{name[:40]!r} holds more than its array")
    return array


def _segments(arrays: dict[str, Array], size: tuple[int, int]) -> Segments:
    missing = {"starts", "members"} - arrays.keys()
    if missing:
        raise DataError(f"'parts' are there, but not {' and '.join(sorted(missing))!r}")
    parts, starts, members = arrays["parts"], arrays["starts"], arrays["members"]
    whole = all(array.dtype.kind in "iu" for array in (parts, starts, members))
    if not whole or (parts.ndim, starts.ndim, members.ndim) != (2, 1, 1) or parts.size == 0:
        raise DataError("'parts' must be whole numbers [height, width], 'starts' and 'members' lists of them")
    base.check_count(len(starts) - 1, pixels=len(members))
    if parts.shape[0] > size[1] or parts.shape[1] > size[0]:
        raise DataError(f"'parts' are {list(parts.shape)}, more than the {size[1]} x {size[0]} pixels of this image")
    if parts.max() >= parts.size:  # sums over the parts take an array of the largest number
        raise DataError("'parts' must be numbered from 0, without large gaps")
    starts = starts.astype(np.int64)  # unsigned differences would never be below 0
    if len(starts) == 0 or starts[0] != 0 or starts[-1] != len(members) or (np.diff(starts) <= 0).any():
        raise DataError("'starts' must go up from 0 to the number of members, each region having some")
    there = np.unique(parts)
    if not np.isin(members, there[there >= 0]).all():
        raise DataError("'members' names parts that no pixel has")
    return Segments(base.enlarge_parts(parts, size), starts, members.astype(np.int32))


def _of_masks(masks: Array, size: tuple[int, int]) -> Segments:
    if masks.size and (masks.ndim != 3 or masks.shape[1:] != size[::-1]):
        raise DataError(f"'masks' must be [n, {size[1]}, {size[0]}] for this image, not {list(masks.shape)}")
    if masks.size and masks.dtype.kind not in "biu":
        raise DataError("'masks' must be true or false for each pixel")
    base.check_count(len(masks), pixels=int(np.count_nonzero(masks)))
    regions = [np.flatnonzero(mask).astype(np.int32) for mask in masks]
    empty = next((number for number, pixels in enumerate(regions) if len(pixels) == 0), None)
    if empty is not None:
        raise DataError(f"mask {empty} is empty")
    return base.segments_of_pixels(size[::-1], regions)


# COCO results: the proposals of many images in one file.


class CocoResults:
    """A list of ``{"image_id", "bbox": [x, y, width, height], "score", "segmentation"}``, of all images.

    The id of an image is the number in its name (``000000123456.jpg`` and ``COCO_val2014_000000123456.jpg`` are
    123456), or its name; or it is defined by the ``images`` (``id`` and ``file_name``) of a dictionary with these and
    ``annotations``. Boxes are counted from 0 and half-open, as COCO's are. Score and segmentation (polygons, or run
    lengths) are optional; with segmentations, boxes are.
    """

    def __init__(self, path: Path) -> None:
        content = parse_json(read_text(path), path)
        entries = content.get("annotations") if isinstance(content, dict) else content
        if not isinstance(entries, list):
            raise DataError(f"{str(path)!r} must be a list of results, or a dictionary with 'images' and 'annotations'")
        images = content.get("images", []) if isinstance(content, dict) else []
        known = isinstance(images, list) and all(isinstance(image, dict) for image in images)
        if not known or not all(
            isinstance(image.get("file_name"), str) and isinstance(image.get("id"), int | str) for image in images
        ):
            raise DataError(f"{str(path)!r}: 'images' must be a list of images, each with 'id' and 'file_name'")
        self._ids = {image["file_name"]: image["id"] for image in images}
        self._entries: dict[int | str, list[dict[str, Any]]] = defaultdict(list)
        for number, entry in enumerate(entries):
            if not isinstance(entry, dict) or not isinstance(entry.get("image_id"), int | str):
                raise DataError(f"{str(path)!r}: result {number} has no 'image_id'")
            self._entries[entry["image_id"]].append(entry)

    def proposals(self, name: str, size: tuple[int, int], file_name: str = "") -> Proposals | None:
        """The proposals of an image of this width and height, or None; its file may have another name than it has."""
        names = list(dict.fromkeys(filter(None, (name, file_name))))
        keys: list[int | str | None] = [self._ids.get(each, self._ids.get(PurePosixPath(each).name)) for each in names]
        if not any(key is not None for key in keys):  # the possible ids of the image, most certain first
            keys = []
            for each in names:
                file, digits = PurePosixPath(each), re.search(r"\d+$", PurePosixPath(each).stem)
                keys += [each, file.name, file.stem, *([int(digits.group())] if digits else [])]
        found = next((self._entries[key] for key in keys if key in self._entries), None)
        return None if found is None else _proposals(found, size)


def _proposals(entries: list[dict[str, Any]], size: tuple[int, int]) -> Proposals:
    base.check_count(len(entries))
    for field in ("score", "segmentation"):
        if len({field in entry for entry in entries}) > 1:
            raise DataError(f"some proposals have a {field} and others have none")
    scores = _numbers([entry["score"] for entry in entries], "scores") if "score" in entries[0] else None
    if "segmentation" in entries[0]:
        return base.checked_proposals(size, base.segments_of_pixels(size[::-1], list(_masks(entries, size))), scores)
    rows = _numbers([entry.get("bbox") for entry in entries], "boxes")
    if rows.ndim != 2 or rows.shape[1] != 4:
        raise DataError("each proposal needs a 'bbox' of four numbers: x, y, width, height")
    rows[:, 2:] += rows[:, :2]
    return base.checked_proposals(size, rows, scores)


def _numbers(values: list[Any], what: str) -> NDArray[np.float64]:
    try:
        return np.array(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"some {what} are no numbers") from None


def _masks(entries: list[dict[str, Any]], size: tuple[int, int]) -> Iterator[NDArray[np.int32]]:
    """The pixels of each, limited in their total number."""
    total = 0
    for shape in (entry["segmentation"] for entry in entries):
        mask = np.zeros(0) if shape == [] else Mask(json.dumps(shape)).pixels(size)  # no polygons: no pixels
        pixels = np.flatnonzero(mask).astype(np.int32)
        if len(pixels) == 0:
            raise DataError("the segmentation of a proposal has no pixels")
        total += len(pixels)
        base.check_count(len(entries), total)
        yield pixels


# The cache: segmenting an image takes a second, reading the segments some milliseconds.


class Cached:
    """A source that computes the proposals of an image once, and then reads them from a folder.

    The key is a hash of the image's pixels and of the settings and the version of the proposer. Files are written
    atomically, so any number of processes may share a folder. Damaged files are replaced.
    """

    def __init__(self, proposer: Proposer, folder: Path) -> None:
        self.proposer = proposer
        self.folder = folder
        self.read = self.made = self.damaged = 0  # images found in the folder or computed, and unreadable files

    def of(self, picture: Image.Image, name: str, path: Path | None = None) -> Proposals:  # noqa: ARG002 - the pixels tell
        """The proposals of an image."""
        facts = [FORMAT, self.proposer.name, self.proposer.version, repr(self.proposer), picture.mode, picture.size]
        key = fingerprint(facts, picture.tobytes(), digits=40)
        file = self.folder / self.proposer.name / key[:2] / f"{key[2:]}.npz"
        try:
            found = read_npz(file, picture.size) if file.exists() else None
        except DataError:
            found = None
            self.damaged += 1
        if found is None:
            found = self.proposer(picture)
            _save(found, file)
            self.made += 1
        else:
            self.read += 1
        return base.check_any(found, name)


def _save(proposals: Proposals, path: Path) -> None:
    arrays = proposals.arrays()
    if "parts" in arrays:
        arrays["parts"] = base.shrink_parts(arrays["parts"], LONGEST)
    for name in arrays.keys() & {"parts", "members"}:  # as int16 where that is enough: half the file
        if arrays[name].max(initial=0) <= np.iinfo(np.int16).max:
            arrays[name] = arrays[name].astype(np.int16)
    atomic_write(path, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays))

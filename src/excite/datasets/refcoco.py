"""Referring expressions (RefCOCO and its relatives) as JSON Lines: each line has an image, a phrase and its box."""

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from PIL import Image

from excite.datasets import base
from excite.datasets.base import Box, Phrase, PhraseDataset, PhraseSample
from excite.errors import DataError
from excite.images import ORIENTATION_TAG, readable_formats

SIDES = ("bbox_xywh", "xywh")
BOX_KEYS = ("box", "bbox_xyxy", "xyxy", "bbox_2d", *SIDES, "bbox")
"""The keys of a box; the first of these counts."""

IMAGE_KEYS = ("file", "img_path", "image", "file_name", "filename", "image_path")
PHRASE_KEYS = ("phrase", "expression", "sent", "sentence")

Line = dict[str, Any]


class ReferringExpressions(PhraseDataset):
    """Every file of lines is a split; an image's phrases are in the order of the lines.

    The image of a line is searched by its path within the folder, then within ``images``, then by its name alone. The
    key of a box decides what its numbers mean, see `corners`.
    """

    name = "rec"
    layout = 'SPLIT.jsonl with lines {"file": ..., "phrase": ..., "box": [x0, y0, x1, y1]}, images/*.jpg'
    _split_file = "{}.jsonl"

    def _read_samples(self) -> None:
        self._files: dict[str, tuple[Path, tuple[int, int]] | None] = {}
        for text in base.read_lines(self._split_path()):
            if text.strip():
                try:
                    self._add(text)
                except LineProblem as problem:
                    self.left_out[str(problem)] += 1

    @classmethod
    def is_in(cls, folder: Path) -> bool:
        """Whether the first lines of a file have an image, words and a box."""
        return any(_is_referring(path) for path in sorted(folder.glob("*.jsonl")))

    def _add(self, text: str) -> None:
        line = _parsed(text)
        if line is None:
            raise LineProblem("lines that are no JSON objects")
        words, name = _first(line, PHRASE_KEYS), _first(line, IMAGE_KEYS)
        if name is None:
            raise LineProblem("lines without an image")
        if words is None:
            raise LineProblem("lines without a phrase")
        if name not in self._files:
            self._files[name] = self._image(name)
        image = self._files[name]
        if image is None:
            raise LineProblem("lines whose image is missing or broken")
        path, size = image
        if {"width", "height"} <= line.keys() and (line["width"], line["height"]) != size:
            raise LineProblem("lines annotated for another size of their image")
        phrase = Phrase(words, (corners(line, size),))
        sample = self._samples.get(name) or PhraseSample(name, path, (), size)
        self._samples[name] = replace(sample, phrases=(*sample.phrases, phrase))

    def _image(self, name: str) -> tuple[Path, tuple[int, int]] | None:
        """The file of an image, with its width and height; None where it is missing or broken.

        It is searched within the folder: the lines' paths are those of somebody else's computer.
        """
        alone = PurePosixPath(name.replace("\\", "/")).name
        if not alone or "\0" in name:
            return None
        likely = [self.folder / name, self.folder / "images" / name] if self._is_inside(name) else []
        path = next((path for path in (*likely, self.folder / "images" / alone) if _is_file(path)), None)
        if path is None:
            found = self._all_images.get(alone, [])
            if len(found) > 1:
                raise DataError(f"{str(found[0])!r} and {str(found[1])!r} both may be the image {alone!r}: remove one")
            path = next(iter(found), None)
        size = None if path is None else _size_of(path)
        return None if path is None or size is None else (path, size)

    def _is_inside(self, name: str) -> bool:
        try:
            return (self.folder / name).resolve().is_relative_to(self.folder.resolve())
        except (OSError, ValueError, RuntimeError):  # too long, no text that a system knows, or links in a circle
            return False

    @cached_property
    def _all_images(self) -> dict[str, list[Path]]:
        return base.images_by(lambda path: path.name, self.folder)


def _is_referring(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8-sig") as file:
            first = islice((text for text in file if text.strip()), 20)  # any of them may be broken
            lines = [_parsed(text) or {} for text in first]
    except (OSError, UnicodeDecodeError):
        return False  # opening it reports the reason, if nothing else is found
    return any(
        _first(line, PHRASE_KEYS) and _first(line, IMAGE_KEYS) and not line.keys().isdisjoint(BOX_KEYS)
        for line in lines
    )


def _parsed(text: str) -> Line | None:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):  # also numbers of thousands of digits
        return None
    return line if isinstance(line, dict) else None


def _first(line: Line, keys: tuple[str, ...]) -> str | None:
    """The first of those entries that has words."""
    values = (line.get(key) for key in keys)
    return next((value.strip() for value in values if isinstance(value, str) and value.strip()), None)


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113 - Path's fails at long names


def _size_of(path: Path) -> tuple[int, int] | None:
    """Width and height of an image as it is read: upright. Only its first bytes are read."""
    if not _is_file(path):
        return None  # a pipe, which would block
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of broken EXIF data: reading the image warns
            warnings.simplefilter("error", Image.DecompressionBombWarning)  # too large to be read
            with Image.open(path, formats=readable_formats()) as picture:
                width, height = picture.size
                turned = picture.getexif().get(ORIENTATION_TAG) in {5, 6, 7, 8}  # on its side
    except Exception:  # noqa: BLE001 - Pillow raises errors of all kinds for a damaged file
        return None
    return (height, width) if turned else (width, height)


class LineProblem(Exception):  # noqa: N818 - counted, never shown as an error
    """The reason against a line, as it is counted."""


def corners(line: Mapping[str, Any], size: tuple[int, int] | None = None) -> Box:
    """The box of a line as half-open corners in pixels, of an image of this width and height.

    ``box``, ``bbox_xyxy``, ``xyxy`` and ``bbox_2d`` are two corners; ``bbox_xywh`` and ``xywh`` a corner, width and
    height. A ``bbox`` alone is both in public files (COCO's has a width), so it is read only in lines whose other keys
    reveal their source.
    """
    key = next((key for key in BOX_KEYS if line.get(key) is not None), None)
    if key is None:
        raise LineProblem("lines without a box")
    shikra, qwen = {"img_path", "expression"} <= set(line), {"image", "sent"} <= set(line)  # or InternVL: two corners
    if key == "bbox" and not shikra and not qwen:
        raise LineProblem("lines whose bbox may have corners or a width and height: call it bbox_xyxy or bbox_xywh")
    stored = line[key]
    if not isinstance(stored, list) or len(stored) != 4 or not all(map(base.is_coordinate, stored)):
        raise LineProblem("boxes that are not four numbers")
    x0, y0, x1, y1 = map(float, stored)
    if key in SIDES:
        x1, y1 = x0 + x1, y0 + y1
    if max(x1, y1) <= 1:
        raise LineProblem("boxes within one pixel: they seem to be shares of the image, but pixels are needed")
    if x1 < x0 or y1 < y0 or not all(map(base.is_coordinate, (x1, y1))):
        raise LineProblem("boxes inside out")
    if x0 == x1 or y0 == y1:
        raise LineProblem("boxes without an area")
    if base.is_outside((x0, y0, x1, y1), size):
        raise LineProblem("boxes outside of their image")
    return x0, y0, x1, y1

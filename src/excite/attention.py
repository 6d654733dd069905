"""The attention map: values with what is needed to read them; its methods call the functions of `excite.readouts`."""

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image

from excite.errors import ExciteError
from excite.io.files import PICTURE_KINDS, save_json, save_npy, save_picture, to_numpy
from excite.readouts.box import DEFAULT_ALPHA, Box, maximum_point, region_boxes, scaled_box, threshold_box
from excite.readouts.figure import Cell, figure, percent
from excite.readouts.notebook import map_html
from excite.readouts.overlay import Mode, Style, checked_map, checked_size, overlay, upsample

__all__ = ["AttentionMap", "AttentionMaps", "compare"]


@dataclass(frozen=True, eq=False, repr=False)
class AttentionMap:
    """Where in an image the evidence for a concept is, as one layer of a classifier sees it.

    Attributes:
        values: the map ``[h, w]``, summed over channels; not negative, except for raw signed maps.
        concept: what was asked for.
        layer: the layer at which the signal was read.
        method: how it was passed down, such as ``"mwp"`` or ``"c-mwp"``.
        mass: how much of the unit top-down signal arrived at the layer.
        image_size: ``(width, height)`` of the original image.
        probability: the classifier's own confidence in the concept, where it has one.
        image: the image itself, so that the map can draw itself.
        units: the output units behind the concept.
        objects: the boxes of the concept's objects, the main one first, or a function that makes the map of their
            extent when a box is first asked for; None: the map has no box but that around its own strong evidence.

    Example:
        >>> values = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
        >>> cat = AttentionMap(values, "cat", "features.4", "mwp", mass=1.0, image_size=(90, 90))
        >>> cat.box()
        (19, 19, 71, 71)
        >>> np.asarray(cat).shape, len(cat)
        ((3, 3), 3)
        >>> cat
        AttentionMap('cat', layer 'features.4', mwp, 3 x 3 over 90 x 90, mass 1.000)
    """

    values: torch.Tensor
    concept: str
    layer: str
    method: str
    mass: float
    image_size: tuple[int, int]
    probability: float | None = None
    image: Image.Image | None = None
    units: tuple[int, ...] = ()
    objects: Callable[[], torch.Tensor] | Sequence[Box] | None = None

    def __post_init__(self) -> None:
        checked_map(self.values)
        if not self.values.is_floating_point():
            raise ExciteError(f"a map must hold floating-point numbers, not {self.values.dtype}: use .float().")
        object.__setattr__(self, "image_size", checked_size(self.image_size))
        if not math.isfinite(self.mass):
            raise ExciteError(f"the mass of a map must be a finite number, not {self.mass!r}.")
        if self.probability is not None and not -1e-6 <= self.probability <= 1 + 1e-6:
            raise ExciteError(f"a probability must be within 0..1, not {self.probability!r}: pass no logit.")
        if self.image is not None and self.image.size != self.image_size:
            raise ExciteError(
                f"the image has the size {self.image.size}, the map says {self.image_size}: "
                "both must be the original image's (width, height)."
            )

    def __repr__(self) -> str:
        height, width = self.values.shape
        probability = "" if self.probability is None else f", probability {self.probability:.3f}"
        return (
            f"AttentionMap({self.concept!r}, layer {self.layer!r}, {self.method}, {width} x {height} over "
            f"{self.image_size[0]} x {self.image_size[1]}, mass {self.mass:.3f}{probability})"
        )

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        """The values for NumPy and whatever takes arrays, such as ``plt.imshow(map)``."""
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __len__(self) -> int:
        return len(self.values)  # its rows, as those of the array

    def __bool__(self) -> bool:
        return True

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: boxes that were not asked for yet are found first, since a function keeps a network."""
        return {**vars(self), "objects": None if self.objects is None else tuple(self.boxes())}

    def _repr_html_(self) -> str:
        """What a notebook shows: the overlay with its point and its boxes, beside what the map says."""
        return map_html(self.to_dict(), self.values, self.image, self.image_size)

    def point(self, mode: Mode = "bicubic") -> tuple[int, int] | None:
        """The pixel ``(x, y)`` with the most evidence, or `None` when there is none.

        Example:
            >>> AttentionMap(torch.zeros(7, 7), "cat", "pool2", "mwp", 0.0, (70, 70)).point() is None
            True
        """
        return maximum_point(self.values, self.image_size, mode)

    def box(self, alpha: float | None = None, mode: Mode = "bicubic") -> Box | None:
        """The half-open box ``(x0, y0, x1, y1)`` of the main object, or `None` where there is no evidence.

        Args:
            alpha: instead, the tightest box around all pixels of this map above ``alpha`` times its mean (the paper's).
            mode: how the map is stretched over the image for that.

        Example:
            >>> AttentionMap(torch.eye(2), "cat", "pool2", "mwp", 1.0, (2, 2)).box(alpha=1)
            (0, 0, 2, 2)
        """
        if alpha is None and self.objects is not None:
            return next(iter(self.boxes()), None)
        return threshold_box(self.values, self.image_size, DEFAULT_ALPHA if alpha is None else alpha, mode)

    def boxes(self) -> list[Box]:
        """A box around each object of the concept where several are clearly apart, the main one first.

        They are found when they are first asked for, from the extent of the objects (see `excite.locate`), for all maps
        that were made together. A map that was made by hand has the box around its strong evidence.

        Example:
            >>> AttentionMap(torch.eye(2), "cat", "pool2", "mwp", 1.0, (2, 2)).boxes()
            [(0, 0, 2, 2)]
        """
        if self.objects is None or self.values.max() <= 0:
            box = threshold_box(self.values, self.image_size)
            return [] if box is None else [box]
        if not callable(self.objects):
            return list(self.objects)
        boxes = region_boxes(self.objects(), self.image_size)
        object.__setattr__(self, "objects", tuple(boxes))
        return boxes

    def upsample(self, size: tuple[int, int] | None = None, mode: Mode = "bicubic") -> torch.Tensor:
        """The values ``[height, width]`` at the image's own size, or at another ``(width, height)``.

        Example:
            >>> AttentionMap(torch.eye(7), "cat", "pool2", "mwp", 1.0, (70, 50)).upsample().shape
            torch.Size([50, 70])
        """
        return upsample(self.values, self.image_size if size is None else size, mode)

    def overlay(
        self,
        image: Image.Image | None = None,
        *,
        opacity: float = 0.6,
        mode: Mode = "bicubic",
        point: bool = False,
        box: bool = False,
        alpha: float | None = None,
        style: Style = "heat",
    ) -> Image.Image:
        """The map drawn over its image, on demand with its point and its boxes.

        Args:
            image: the image to draw on; without it, the one the map carries.
            opacity: how much of the image the strongest evidence covers, 0 to 1.
            mode: how the map is stretched over the image.
            point: whether to mark the point.
            box: whether to outline the boxes of its objects.
            alpha: instead of those, outline the box around what is above this many means of the map.
            style: ``"heat"``, colours over the dimmed image; ``"spotlight"``, the image itself, dim where there is no
                evidence; ``"contours"``, lines around a quarter, a half and three quarters of the strongest evidence.

        Example:
            >>> cat = AttentionMap(torch.eye(7), "cat", "pool2", "mwp", 1.0, (70, 50))
            >>> cat.overlay(Image.new("RGB", (70, 50)), point=True).size
            (70, 50)
        """
        picture = _picture(self, image)
        return overlay(
            picture,
            self.values,
            opacity=opacity,
            mode=mode,
            point=maximum_point(self.values, picture.size, mode) if point else None,
            boxes=self._drawn_boxes(picture.size, alpha, mode) if box else (),
            style=style,
        )

    def _drawn_boxes(self, size: tuple[int, int], alpha: float | None, mode: Mode) -> list[Box]:
        """The boxes in an image of another size."""
        if alpha is None and self.objects is not None:
            return [scaled_box(box, self.image_size, size) for box in self.boxes()]
        box = threshold_box(self.values, size, DEFAULT_ALPHA if alpha is None else alpha, mode)
        return [] if box is None else [box]

    def numpy(self) -> np.ndarray[Any, Any]:
        """The values ``[h, w]`` as an array on the CPU.

        Example:
            >>> AttentionMap(torch.eye(2), "cat", "pool2", "mwp", 1.0, (2, 2)).numpy().tolist()
            [[1.0, 0.0], [0.0, 1.0]]
        """
        return to_numpy(self.values)

    def to_dict(self, *, alpha: float | None = None, mode: Mode = "bicubic", boxes: bool = True) -> dict[str, Any]:
        """The answer in plain Python values, ready for JSON; the values themselves are left to `save`.

        ``alpha`` and ``mode`` are those of `box`; with ``alpha``, there is no other box. Without ``boxes`` none are
        looked for, which would take longer than the map: both ``box`` and ``boxes`` are None.

        Example:
            >>> AttentionMap(torch.eye(2), "cat", "pool2", "mwp", 1.0, (2, 2)).to_dict()["point"]
            [0, 0]
        """
        point, box = self.point(mode), self.box(alpha, mode) if boxes else None
        several = boxes and alpha is None and self.objects is not None
        found = self.boxes() if several else [box] if box else []
        return {
            "concept": self.concept,
            "probability": None if self.probability is None else float(self.probability),
            "point": None if point is None else list(point),
            "box": None if box is None else list(box),
            "boxes": [list(each) for each in found] if boxes else None,
            "mass": float(self.mass),
            "layer": self.layer,
            "method": self.method,
        }

    def save(self, path: str | os.PathLike[str], *, style: Style = "heat") -> Path:
        """Write the map: ``.png``, ``.jpg``, ``.webp`` is the overlay, ``.npy`` the values, ``.json`` all but images.

        The file is there as a whole or not at all, and missing folders are made.

        Raises:
            ExciteError: the name ends in something else, the map has no image to draw on, or the file
                cannot be written.

        Example:
            >>> cat = AttentionMap(torch.eye(2), "cat", "pool2", "mwp", 1.0, (2, 2))
            >>> cat.save("cat.json")
            PosixPath('cat.json')
        """
        suffix = Path(path).suffix.lower()
        if suffix in PICTURE_KINDS:
            return save_picture(self.overlay(style=style), path)
        if suffix == ".npy":
            return save_npy(self.values, path)
        if suffix != ".json":
            raise ExciteError(
                f"{str(path)!r} does not say what to save: end the name in .png, .jpg, .webp, .npy or .json."
            )
        rest = {
            "units": [int(unit) for unit in self.units],
            "image_size": list(self.image_size),
            "dtype": str(self.values.dtype).removeprefix("torch."),
            "values": self.values.tolist(),
        }
        return save_json(self.to_dict() | rest, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "AttentionMap":
        """Read a map back from the ``.json`` that `save` wrote; it carries no image.

        Raises:
            ExciteError: the file cannot be read or is not such a map.

        Example:
            >>> AttentionMap(torch.eye(2), "cat", "pool2", "mwp", 1.0, (2, 2)).save("cat.json")
            PosixPath('cat.json')
            >>> AttentionMap.load("cat.json").concept
            'cat'
        """
        name = repr(str(path))
        try:
            saved = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ExciteError(f"{name} cannot be read: {error.strerror}; check the name and permissions.") from error
        except (ValueError, RecursionError) as error:
            raise ExciteError(f"{name} is not JSON: load what AttentionMap.save wrote as .json.") from error
        try:
            values = torch.tensor(saved["values"], dtype=getattr(torch, saved["dtype"]))
            known = {key: saved[key] for key in ("concept", "layer", "method", "mass", "probability")}
            size, units = tuple(saved["image_size"]), tuple(saved["units"])
            boxes = saved.get("boxes")  # not in files of version 0.1
            objects = None if boxes is None else [(round(a), round(b), round(c), round(d)) for a, b, c, d in boxes]
            return cls(values, image_size=size, units=units, objects=objects, **known)
        except (ArithmeticError, AttributeError, KeyError, RuntimeError, TypeError, ValueError, ExciteError) as error:
            reason = f"it lacks {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
            line = f"{name} is not a saved map ({reason[:200]}): load what AttentionMap.save wrote."
            raise ExciteError(line) from error


class AttentionMaps(list[AttentionMap]):
    """A list of maps that a notebook shows."""

    def _repr_html_(self) -> str:
        return "\n".join(each._repr_html_() for each in self)


def compare(  # noqa: PLR0913 - all but the maps may be left out
    maps: Sequence[AttentionMap],
    *,
    rows: Literal["concept", "layer", "method"] | None = None,
    image: Image.Image | None = None,
    point: bool = False,
    box: bool = False,
    columns: int = 4,
    cell_width: int = 320,
    style: Style = "heat",
) -> Image.Image:
    """Maps side by side: the photograph first, then each map over it with its concept, confidence and layer.

    Maps of several images may be given: each image starts a row of its own, behind its photograph. Images are
    told apart by their pixels, so that maps from several calls of `excite.attend` stand together.

    Args:
        maps: the maps, in the order in which they shall appear.
        rows: what tells one row from the next, such as ``"layer"``; without it a row has at most ``columns``
            maps.
        image: the image behind all maps; without it, the one that each map carries.
        point: whether to mark each map's point.
        box: whether to outline each map's box.
        columns: how many maps a row holds when ``rows`` does not say.
        cell_width: the width of one image in the figure, in pixels.
        style: as in `AttentionMap.overlay`.

    Returns:
        The figure, an RGB image.

    Raises:
        ExciteError: there are no maps, or a map has no image to draw on.

    Example:
        >>> cat = AttentionMap(torch.eye(7), "cat", "pool2", "mwp", 1.0, (70, 50))
        >>> compare([cat, cat], image=Image.new("RGB", (70, 50)), cell_width=100).width
        332
    """
    if not maps:
        raise ExciteError("there is nothing to compare: pass at least one attention map.")
    if columns < 1:
        raise ExciteError(f"a row must hold at least one map, not {columns}: use columns=1 or more.")
    grid: list[list[Cell | None]] = []
    for picture, about in _by_picture(maps, image):
        photograph: Cell | None = (picture, "photograph")
        for row in _rows(about, rows, columns):
            drawn = [(one.overlay(picture, point=point, box=box, style=style), _caption(one)) for one in row]
            grid.append([photograph, *drawn])
            photograph = None  # once is enough
    return figure(grid, cell_width=cell_width)


def _picture(one: AttentionMap, image: Image.Image | None) -> Image.Image:
    """The image given, or the map's own."""
    picture = one.image if image is None else image
    if picture is None:
        raise ExciteError(f"the map for {one.concept!r} carries no image to draw on: pass image=...")
    return picture


def _by_picture(
    maps: Sequence[AttentionMap], image: Image.Image | None
) -> list[tuple[Image.Image, list[AttentionMap]]]:
    """Each image with its maps, in order of appearance."""
    found: list[tuple[Image.Image, list[AttentionMap]]] = []
    for one in maps:
        picture = _picture(one, image)
        if not any(known == picture for known, _ in found):
            found.append((picture, []))
        next(about for known, about in found if known == picture).append(one)
    return found


def _rows(maps: Sequence[AttentionMap], rows: str | None, columns: int) -> list[list[AttentionMap]]:
    """The maps in rows: one per value of an attribute in order of appearance, or of so many columns."""
    if rows is None:  # of one length as far as possible: five are three and two, not four and one
        length = math.ceil(len(maps) / math.ceil(len(maps) / columns))
        return [list(maps[start : start + length]) for start in range(0, len(maps), length)]
    if rows not in {"concept", "layer", "method"}:
        raise ExciteError(f"rows cannot be told apart by {rows!r}: use 'concept', 'layer' or 'method'.")
    grouped: dict[str, list[AttentionMap]] = {}
    for one in maps:
        grouped.setdefault(getattr(one, rows), []).append(one)
    return list(grouped.values())


def _caption(one: AttentionMap) -> str:
    """What is asked, and below how sure the classifier is and how the map was made."""
    about = [one.layer, one.method]
    if one.probability is not None:
        about.insert(0, percent(one.probability))
    if one.values.max() <= 0:
        about.append("no evidence")
    return f"{one.concept}\n{' · '.join(about)}"

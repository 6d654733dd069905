"""What the four numbers of a box mean: programs that write referring expressions do not agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from excite.datasets.masks import FARTHEST
from excite.datasets.sample import checked_box
from excite.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from excite.datasets.sample import Box

__all__ = ["BOX_KEYS", "BoxProblem", "corners"]

CORNERS = ("box", "bbox_xyxy", "xyxy", "bbox_2d")
SIDES = ("bbox_xywh", "xywh")
BOX_KEYS = (*CORNERS, *SIDES, "bbox")
"""Where a box may be, the first of these counting."""

KNOWN_FORMS = (("img_path", "expression"), ("image", "sent"))
"""Of Shikra's lines, and of Qwen-VL's and InternVL's: there, ``bbox`` is two corners in pixels."""


class BoxProblem(Exception):  # noqa: N818 - counted, never shown as an error
    """Why a line has no box that can be used, as it is counted."""


def corners(line: Mapping[str, Any]) -> Box:
    """The box of a line as half-open corners in pixels.

    ``box``, ``bbox_xyxy``, ``xyxy`` and ``bbox_2d`` are two corners; ``bbox_xywh`` and ``xywh`` a corner, width and
    height. A ``bbox`` alone is both in public files (COCO's has a width), so that it is read only in lines whose other
    keys tell where they come from.

    Raises:
        BoxProblem: there is none, or it cannot be used.

    Example:
        >>> corners({"bbox_xywh": [10, 20, 5, 5]}), corners({"image": "a.jpg", "sent": "a cup", "bbox": [1, 2, 3, 4]})
        ((10.0, 20.0, 15.0, 25.0), (1.0, 2.0, 3.0, 4.0))
    """
    key = next((key for key in BOX_KEYS if line.get(key) is not None), None)
    if key is None:
        raise BoxProblem("lines without a box")
    if key == "bbox" and not any(set(form) <= set(line) for form in KNOWN_FORMS):
        raise BoxProblem("lines whose bbox may have corners or a width and height: call it bbox_xyxy or bbox_xywh")
    x0, y0, x1, y1 = _numbers(line[key])
    if key in SIDES:
        x1, y1 = x0 + x1, y0 + y1
    if max(x1, y1) <= 1:
        raise BoxProblem("boxes within one pixel: they seem to be shares of the picture, but pixels are needed")
    try:
        box = checked_box(x0, y0, x1, y1, key)
    except DataError:
        raise BoxProblem("boxes inside out") from None
    if x0 == x1 or y0 == y1:
        raise BoxProblem("boxes without an area")
    return box


def _numbers(stored: object) -> Box:
    if not isinstance(stored, list) or len(stored) != 4 or not all(map(_is_number, stored)):
        raise BoxProblem("boxes that are not four numbers")
    x0, y0, x1, y1 = map(float, stored)
    return x0, y0, x1, y1


def _is_number(side: object) -> bool:
    return isinstance(side, int | float) and not isinstance(side, bool) and abs(side) <= FARTHEST  # NaN is not

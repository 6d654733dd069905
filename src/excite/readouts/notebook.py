"""HTML of a map or grounding for notebooks: an image and a table, as one self-contained text."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any

from PIL import Image

from excite.io.text import templates_of
from excite.readouts.figure import percent
from excite.readouts.overlay import overlay

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import Tensor


def data_address(kind: str, content: bytes) -> str:
    """Content as a data URL.

    Example:
        >>> data_address("text/plain", b"cat")
        'data:text/plain;base64,Y2F0'
    """
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def jpeg(picture: Image.Image, quality: int) -> bytes:
    """An image as the bytes of a JPEG file.

    Example:
        >>> Image.open(io.BytesIO(jpeg(Image.new("L", (40, 20)), 80))).size
        (40, 20)
    """
    file = io.BytesIO()
    picture.convert("RGB").save(file, format="JPEG", quality=quality, optimize=True)
    return file.getvalue()


SMALLEST, LARGEST = 240, 480  # the longer side of a map in pixels
QUALITY = 85  # of the JPEG
DARK_SHEET, LIGHT_SHEET = (16, 16, 24), (255, 255, 255)  # the background of a map without an image, and of a signed one
OPACITY, OPACITY_ON_SHEET = 0.6, 1.0


def map_html(told: Mapping[str, Any], values: Tensor, image: Image.Image | None, image_size: tuple[int, int]) -> str:
    """The HTML of a map: its overlay with point and box, and the values of ``told`` (`AttentionMap.to_dict`).

    Args:
        told: the values.
        values: the map ``[h, w]``.
        image: the image; without it the map is drawn on an empty sheet.
        image_size: ``(width, height)`` of the original image.

    Example:
        >>> import torch
        >>> told = {"concept": "<cat>", "probability": 0.87, "point": [3, 4], "box": [0, 0, 9, 9],
        ...         "mass": 1.0, "layer": "pool2", "method": "mwp"}
        >>> html = map_html(told, torch.eye(7), None, (70, 50))
        >>> "&lt;cat&gt;" in html, "87%" in html, "3, 4" in html
        (True, True, True)
    """
    scale = min(max(*image_size, SMALLEST), LARGEST) / max(image_size)
    size = max(1, round(image_size[0] * scale)), max(1, round(image_size[1] * scale))
    if image is None:
        sheet = Image.new("RGB", size, LIGHT_SHEET if values.min() < 0 else DARK_SHEET)
    else:
        smooth = Image.Resampling.LANCZOS if size[0] < image.width else Image.Resampling.BICUBIC
        sheet = image.convert("RGB").resize(size, smooth, reducing_gap=3.0)  # much faster for a large one
    point, box = told["point"], told["box"]
    drawn = overlay(
        sheet,
        values,
        opacity=OPACITY_ON_SHEET if image is None else OPACITY,
        point=None if point is None else _scaled_point(point, scale, size),
        box=None if box is None else _scaled_box(box, scale, size),
    )
    rows = [
        ("concept", told["concept"]),
        ("probability", percent(told["probability"]) or "not known"),
        ("point", "no evidence" if point is None else ", ".join(map(str, point))),
        ("box", "none" if box is None else ", ".join(map(str, box))),
        ("mass", f"{told['mass']:.3f}"),
        ("layer", told["layer"]),
        ("method", told["method"]),
    ]
    return shown_html(drawn, _alt(told, image_size), rows)


def shown_html(picture: Image.Image | None, alt: str, rows: Iterable[tuple[str, str]]) -> str:
    """An image (or None) with its alternative text, and a table of names and values; all text is escaped.

    Example:
        >>> shown_html(None, "", [("phrase", "a < b")]).count("a &lt; b")
        1
    """
    source = "" if picture is None else data_address("image/jpeg", jpeg(picture, QUALITY))
    size = (0, 0) if picture is None else picture.size
    template = templates_of("excite.readouts").get_template("notebook.html")
    return template.render(source=source, size=size, alt=alt, rows=rows).strip()


def _alt(told: Mapping[str, Any], image_size: tuple[int, int]) -> str:
    if told["point"] is None:
        return f"No evidence for {told['concept']} in this image."
    (x, y), box = told["point"], told["box"]
    within = "" if box is None else f", strong within {box[0]}, {box[1]} to {box[2]}, {box[3]}"
    width, height = image_size
    return f"Where the evidence for {told['concept']} is: most at {x}, {y}{within}, in {width} x {height} pixels."


def _scaled_point(point: Sequence[int], scale: float, size: tuple[int, int]) -> tuple[int, int]:
    """The pixel that contains the centre of the original one."""
    x, y = (min(int((at + 0.5) * scale), most - 1) for at, most in zip(point, size, strict=True))
    return x, y


def _scaled_box(box: Sequence[int], scale: float, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The box, at least a pixel wide and high."""
    x0, y0 = (min(round(at * scale), most - 1) for at, most in zip(box[:2], size, strict=True))
    x1, y1 = (round(at * scale) for at in box[2:])
    return x0, y0, max(x0 + 1, x1), max(y0 + 1, y1)

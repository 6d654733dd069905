"""HTML of a map or grounding for notebooks: an image and a table, as one self-contained text."""

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from PIL import Image
from torch import Tensor

from excite.io.text import templates_of
from excite.readouts.box import scaled_box
from excite.readouts.figure import at_size, percent
from excite.readouts.overlay import overlay


def data_address(kind: str, content: bytes) -> str:
    """Content as a data URL."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def jpeg(picture: Image.Image, quality: int) -> bytes:
    """An image as the bytes of a JPEG file."""
    file = io.BytesIO()
    picture.convert("RGB").save(file, format="JPEG", quality=quality, optimize=True)
    return file.getvalue()


SMALLEST, LARGEST, QUALITY = 240, 480, 85  # the longer side of a map in pixels, and of the JPEG
DARK_SHEET, LIGHT_SHEET = (16, 16, 24), (255, 255, 255)  # the background of a map without an image, and of a signed one
OPACITY, OPACITY_ON_SHEET = 0.6, 1.0


def map_html(told: Mapping[str, Any], values: Tensor, image: Image.Image | None, image_size: tuple[int, int]) -> str:
    """The HTML of a map: its overlay (on a sheet without an image), and the values of ``told`` (its `to_dict`)."""
    scale = min(max(*image_size, SMALLEST), LARGEST) / max(image_size)
    size = max(1, round(image_size[0] * scale)), max(1, round(image_size[1] * scale))
    blank = LIGHT_SHEET if values.min() < 0 else DARK_SHEET
    sheet = Image.new("RGB", size, blank) if image is None else at_size(image, size)
    point, boxes = told["point"], told["boxes"]
    drawn = overlay(
        sheet,
        values,
        opacity=OPACITY_ON_SHEET if image is None else OPACITY,
        point=None if point is None else _scaled_point(point, scale, size),
        boxes=[scaled_box(box, image_size, size) for box in boxes],
    )
    rows = [
        ("concept", told["concept"]),
        ("probability", percent(told["probability"]) or "not known"),
        ("point", "no evidence" if point is None else ", ".join(map(str, point))),
        ("boxes" if len(boxes) > 1 else "box", "; ".join(", ".join(map(str, box)) for box in boxes) or "none"),
        ("mass", f"{told['mass']:.3f}"),
        ("layer", told["layer"]),
        ("method", told["method"]),
    ]
    return shown_html(drawn, _alt(told, image_size), rows)


def shown_html(picture: Image.Image | None, alt: str, rows: Iterable[tuple[str, str]]) -> str:
    """An image (or None) with its alternative text, and a table of names and values; all text is escaped."""
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

"""Answers as the page draws them: plain values, places as shares of the image's width and height."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import interpolate

from excite.io.files import to_numpy
from excite.readouts.figure import percent
from excite.readouts.notebook import data_address
from excite.web.responses import Stretched, map_told, phrase_told, rounded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from excite.attention import AttentionMap
    from excite.grounding import Grounded
    from excite.web.uploads import Sheet

__all__ = ["map_view", "phrase_view", "picture_view"]

SIDE = 420  # pixels of a map as it is sent: it is smooth, and the browser stretches it
REGIONS = 5


def picture_view(sheet: Sheet) -> dict[str, Any]:
    """Where the page finds the image, and how large it was."""
    return {"key": sheet.key, "url": f"pictures/{sheet.key}", "width": sheet.size[0], "height": sheet.size[1]}


def map_view(sheet: Sheet, found: AttentionMap) -> dict[str, Any]:
    """A map of a concept: what is drawn, what is told, and the files that can be had of it."""
    one = Stretched.of(found)
    loadable = {"units": list(found.units), "image_size": list(sheet.size), "dtype": "float32"}  # by AttentionMap.load
    about = [f"layer {found.layer}", found.method]
    if found.probability is not None:
        about.insert(0, f"the classifier says {percent(found.probability)}")
    return {
        "title": found.concept,
        "about": about,
        "strength": _strength(one.plane),
        "point": _middle(one.point, sheet),
        "box": None if one.box is None else _shares(one.box, sheet),
        "regions": [],
        "words": [],
        "notes": [] if one.point else ["There is no evidence for it at this layer."],
        "json": json.dumps({**map_told(sheet, one), **loadable, "values": rounded(found.values)}),
        "npy": _npy(found.values),
    }


def phrase_view(sheet: Sheet, found: Grounded, model: str) -> dict[str, Any]:
    """The map of a phrase with its regions, best first, and the map of each of its words."""
    reading = found.map.reading
    notes = []
    if not found.map.known:
        notes.append(f"{model} knows no word of this: the map shows whatever it finds.")
    elif reading.skipped:
        notes.append(f"Words that {model} does not know: {', '.join(reading.skipped)}.")
    if found.map.hints:
        notes.append(f"Words that weigh the map: {', '.join(word.text for word in found.map.hints)}.")
    plane = torch.from_numpy(np.asarray(found.map.plane, dtype=np.float32))
    first = found.map.words[0]
    return {
        "title": found.phrase,
        "about": ["phrase", f"layer {first.layer}", first.method],
        "strength": _strength(plane),
        "point": _middle(found.map.point, sheet),
        "box": None,
        "regions": [{"box": _shares(region.box, sheet), "score": region.score} for region in found.regions[:REGIONS]],
        "words": [
            {"word": word.text, "strength": _strength(one.upsample())}
            for word, one in zip(reading.words, found.map.words, strict=found.map.known)
        ],
        "notes": notes,
        "json": json.dumps({**phrase_told(sheet, found), "image_size": list(sheet.size)}),
        "npy": _npy(plane),
    }


def _middle(point: tuple[int, int] | None, sheet: Sheet) -> list[float] | None:
    """The middle of a pixel."""
    return None if point is None else _shares([at + 0.5 for at in point], sheet)


def _shares(places: Sequence[float], sheet: Sheet) -> list[float]:
    """Pixels of the kept image, x and y in turn, as shares of its sides."""
    return [round(float(at) / sheet.picture.size[k % 2], 5) for k, at in enumerate(places)]


def _strength(stretched: Tensor) -> str:
    """A map as large as its image, divided by its maximum, as a small grey image in a data: address."""
    height, width = stretched.shape
    share = min(1, SIDE / max(width, height))
    plane = stretched.float().clamp(min=0)[None, None]
    small = interpolate(plane, (max(1, round(height * share)), max(1, round(width * share))), mode="area")[0, 0]
    largest = small.max()
    grey = to_numpy((small / largest if largest > 0 else small).mul(255).round()).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(grey).save(file, "PNG", compress_level=1)
    return data_address("image/png", file.getvalue())


def _npy(values: Tensor) -> str:
    file = io.BytesIO()
    np.save(file, to_numpy(values), allow_pickle=False)
    return data_address("application/octet-stream", file.getvalue())

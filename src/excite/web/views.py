"""Answers in the form in which the page draws them: plain values, coordinates as shares of the image's sides."""

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
from excite.web.responses import UpsampledMap, map_json, phrase_json, rounded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from excite.attention import AttentionMap
    from excite.grounding import Grounded
    from excite.web.uploads import Upload

SIDE = 420  # pixels of a map as it is sent: it is smooth, and the browser enlarges it
REGIONS = 5


def picture_view(upload: Upload) -> dict[str, Any]:
    """The address of an image, and its size as it was sent."""
    return {"key": upload.key, "url": f"pictures/{upload.key}", "width": upload.size[0], "height": upload.size[1]}


def map_view(upload: Upload, found: AttentionMap) -> dict[str, Any]:
    """The map of a concept: drawing, text, and files to download."""
    one = UpsampledMap.of(found)
    loadable = {"units": list(found.units), "image_size": list(upload.size), "dtype": "float32"}  # by AttentionMap.load
    about = [f"layer {found.layer}", found.method]
    if found.probability is not None:
        about.insert(0, f"the classifier says {percent(found.probability)}")
    return {
        "title": found.concept,
        "about": about,
        "strength": _strength(one.plane),
        "point": _middle(one.point, upload),
        "box": None if one.box is None else _shares(one.box, upload),
        "regions": [],
        "words": [],
        "notes": [] if one.point else ["There is no evidence for it at this layer."],
        "json": json.dumps({**map_json(upload, one), **loadable, "values": rounded(found.values)}),
        "npy": _npy(found.values),
    }


def phrase_view(upload: Upload, found: Grounded, model: str) -> dict[str, Any]:
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
        "point": _middle(found.map.point, upload),
        "box": None,
        "regions": [{"box": _shares(region.box, upload), "score": region.score} for region in found.regions[:REGIONS]],
        "words": [
            {"word": word.text, "strength": _strength(one.upsample())}
            for word, one in zip(reading.words, found.map.words, strict=found.map.known)
        ],
        "notes": notes,
        "json": json.dumps({**phrase_json(upload, found), "image_size": list(upload.size)}),
        "npy": _npy(plane),
    }


def _middle(point: tuple[int, int] | None, upload: Upload) -> list[float] | None:
    """The middle of a pixel, as shares of the sides."""
    return None if point is None else _shares([at + 0.5 for at in point], upload)


def _shares(places: Sequence[float], upload: Upload) -> list[float]:
    """Pixels of the kept image, x and y in turn, as shares of its sides."""
    return [round(float(at) / upload.picture.size[k % 2], 5) for k, at in enumerate(places)]


def _strength(stretched: Tensor) -> str:
    """An upsampled map, divided by its maximum, as a small grey PNG in a data: URL."""
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

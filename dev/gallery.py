"""Draws the pictures of docs/gallery.md from the free photographs of scikit-image, with the embedded classifiers.

The weights of the transformer are not part of the repository: ``python dev/gallery.py DEIT_TINY.safetensors``.
"""

import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from PIL import Image

import excite
from excite.errors import LostSignalWarning
from excite.images import free_photographs

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
MOST_BYTES = 150_000
PHOTOS = {path.stem: path for path in free_photographs()}
METHODS = ["excite", "c-mwp", "mwp", "extent", "cam", "grad", "guided", "lrp"]
LAYERS = ["blocks.14", "blocks.10", "blocks.4", "blocks.0"]
MISTAKES = {
    "chelsea": ["dog", "plastic bag"],
    "coffee": ["dining table", "person"],
    "rocket": ["airplane", "person"],
    "astronaut": ["cat", "tie"],
}
TRANSFORMER = "timm:deit_tiny_patch16_224"


def methods() -> Image.Image:
    """One row for each photograph, one column for each method."""
    network = excite.load("efficientnet-lite0")
    asked = [("chelsea", "cat"), ("coffee", "espresso"), ("rocket", "missile")]
    return _table([(network, photo, concept, {"method": name}) for photo, concept in asked for name in METHODS])


def layers() -> Image.Image:
    """One row for each photograph, one column for each layer, from the output down."""
    network = excite.load("efficientnet-lite0")
    asked = [("chelsea", "cat"), ("coffee", "cup")]
    return _table(
        [(network, photo, concept, {"method": "mwp", "layer": name}) for photo, concept in asked for name in LAYERS]
    )


def contrast() -> Image.Image:
    """Without contrast, with it, and one concept against the other."""
    network = excite.load("efficientnet-lite0")
    pairs = [("astronaut", "space shuttle", "crash helmet"), ("coffee", "espresso", "cup")]
    cells = []
    for photo, one, other in pairs:
        for concept, against in ((one, other), (other, one)):
            cells += [(network, photo, concept, {"method": name}) for name in ("mwp", "c-mwp")]
            cells.append((network, photo, concept, {"against": against}))
    return _table(cells, columns=3)


def transformer(weights: str) -> Image.Image:
    """A DeiT-tiny beside EfficientNet-Lite0."""
    networks = [excite.load(TRANSFORMER, weights=weights), excite.load("efficientnet-lite0")]
    asked = [("chelsea", "tabby"), ("coffee", "espresso"), ("rocket", "missile")]
    names = ["excite", "c-mwp", "mwp", "grad-cam"]
    return _table(
        [
            (network, photo, concept, {"method": name})
            for photo, concept in asked
            for network in networks
            for name in names
        ]
    )


def failures() -> Image.Image:
    """Concepts that are not there, or whose evidence is not where a person would point."""
    network = excite.load()
    return _table([(network, photo, concept, {}) for photo, words in MISTAKES.items() for concept in words])


def _table(cells: Sequence[tuple[excite.Classifier, str, str, dict[str, str]]], columns: int = 4) -> Image.Image:
    """The heatmaps of all cells with their points, row by row."""
    maps = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LostSignalWarning)
        for network, photo, concept, options in cells:
            maps += excite.attend(network, PHOTOS[photo], concept, **options)
    return excite.compare(maps, point=True, columns=columns, cell_width=180)


def save(name: str, draw: Callable[[], Image.Image]) -> None:
    """Write a picture of at most 150 kB."""
    target = PICTURES / f"gallery-{name}.jpg"
    draw().save(target, quality=75, optimize=True)
    size = target.stat().st_size
    print(f"drew {target}, {size // 1000} kB")
    if size >= MOST_BYTES:
        raise SystemExit(f"{target} has {size} bytes: draw it smaller")


def main(weights: str) -> None:
    """Draw all of them."""
    for draw in (methods, layers, contrast, failures):
        save(draw.__name__, draw)
    save("transformer", lambda: transformer(weights))


if __name__ == "__main__":
    main(sys.argv[1])

"""Draws the figure of docs/transformers.md: a DeiT-tiny, methods side by side, on free photographs.

Its weights are not part of the repository: give the file, as ``python dev/transformer_pictures.py WEIGHTS``.
"""

import sys
import warnings
from pathlib import Path

from skimage import data

import excite
from excite.errors import LostSignalWarning

TARGET = Path(__file__).parents[1] / "docs" / "pictures" / "transformers.jpg"
MODEL = "timm:deit_tiny_patch16_224"
CONCEPTS = [(data.chelsea(), "cat"), (data.coffee(), "espresso"), (data.rocket(), "missile")]
METHODS = ["excite", "c-mwp", "c-mwp-channels", "grad-cam", "chefer", "attn-lrp"]


def main(weights: str) -> None:
    """Draw it: one row for each photograph, one column for each method."""
    classifier = excite.load(MODEL, weights=weights)
    maps = []
    for photo, concept in CONCEPTS:
        for method in METHODS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LostSignalWarning)
                (found,) = excite.attend(classifier, photo, concept, method=method)
            maps.append(found)
    drawn = excite.compare(maps, point=True, columns=len(METHODS), cell_width=170)
    drawn.save(TARGET, quality=85, optimize=True)
    print(f"drew {TARGET}, {TARGET.stat().st_size // 1024} kB, {drawn.size}")


if __name__ == "__main__":
    main(sys.argv[1])

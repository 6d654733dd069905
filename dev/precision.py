"""How far maps in other types, and within autocast, are from those in float32: the table of docs/gpu.md.

python dev/precision.py
"""

import copy
from contextlib import nullcontext

import torch
from PIL import Image
from skimage import data

import excite

METHODS = ("mwp", "c-mwp", "excite", "extent", "grad-cam")
TYPES = {"`float64`": torch.float64, "`float16`": torch.float16, "`bfloat16`": torch.bfloat16}
CONCEPT = 281  # tabby


def main() -> None:
    """Print the table, in Markdown."""
    cat = Image.fromarray(data.chelsea())
    exact = excite.load("efficientnet-lite0")
    print(f"| method | {' | '.join(TYPES)} | autocast to `bfloat16` |\n|---|{'---|' * (len(TYPES) + 1)}")
    for method in METHODS:
        expected = shares(exact, cat, method)
        found = [shares(in_type(exact, dtype), cat, method) for dtype in TYPES.values()]
        found.append(shares(exact, cat, method, autocast=True))
        print(f"| `{method}` | {' | '.join(f'{float((each - expected).abs().sum()):.3f}' for each in found)} |")


def in_type(classifier: excite.Classifier, dtype: torch.dtype) -> excite.Classifier:
    """A copy of the classifier in another type."""
    other = copy.deepcopy(classifier)
    other.module.to(dtype)
    return other


def shares(classifier: excite.Classifier, image: Image.Image, method: str, *, autocast: bool = False) -> torch.Tensor:
    """The map over its sum."""
    with torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
        (found,) = excite.attend(classifier, image, CONCEPT, method=method)
    return found.values.double() / found.values.double().sum()


if __name__ == "__main__":
    main()

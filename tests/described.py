"""Tiny data sets with phrases about coloured squares, and proposals for them."""

import json
from pathlib import Path

from annotated import SIDE, picture

from excite.datasets.base import Phrase, PhraseDataset, PhraseSample
from excite.experiments.grounding.measure import matches_of
from excite.metrics.ranking import first_match

RED, GREEN = (4, 4, 12, 12), (30, 28, 42, 44)
WHOLE = (0, 0, SIDE, SIDE)


class Said(PhraseDataset):
    """Phrases given in a test: for each image's name its squares and phrases."""

    name = "said"
    layout = "in a test"

    def __init__(self, folder, pictures, groups=()):
        self.pictures, self.groups = pictures, tuple(groups)
        for name, (squares, _) in pictures.items():
            if not (folder / name).exists():  # the same file, as if it had been there all along
                picture(folder / name, squares)
        super().__init__(folder, "val")

    def _splits(self):
        return ["val"]

    def _read_samples(self):
        self.left_out["phrases without a box"] += 3
        for name, (_, phrases) in self.pictures.items():
            self._samples[name] = PhraseSample(name, Path(self.folder) / name, tuple(phrases), (SIDE, SIDE))

    @classmethod
    def is_in(cls, folder):
        return False


def two_squares(k):
    """A red and a green square, each moved by another image's number, with a phrase for each and one for both."""
    red = tuple(side + k % 5 for side in RED)
    green = tuple(side - k % 7 if at % 2 else side for at, side in enumerate(GREEN))
    squares = [("red", red), ("green", green)]
    phrases = [
        Phrase("the red square", (red,), "warm", "the red square on black"),
        Phrase("green", (green,), "cold"),
        Phrase("red and green", (red, green), "warm", also=("cold",)),
    ]
    return squares, phrases


def pictures(count):
    """So many images with two squares."""
    return {f"{k:03}.png": two_squares(k) for k in range(count)}


def around(squares):
    """Proposals: first the whole image, then quarters, boxes that fit a little, and the squares themselves."""
    half = SIDE // 2
    quarters = [(x, y, x + half, y + half) for x in (0, half) for y in (0, half)]
    loose = [(x0 - 2, y0 - 2, x1 + 3, y1 + 3) for _, (x0, y0, x1, y1) in squares]
    return [WHOLE, *quarters, *loose, *(box for _, box in squares)]


def write_proposals(path, boxes):
    """Boxes of images, the best first, as COCO results."""
    entries = [
        {"image_id": name, "bbox": [x0, y0, x1 - x0, y1 - y0], "score": round(1 - 0.05 * k, 2)}
        for name, each in boxes.items()
        for k, (x0, y0, x1, y1) in enumerate(each)
    ]
    text = json.dumps(entries)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return path


def first_hit(ranked, truth):
    """The rank of the first box that matches the union of the true ones; None if none does."""
    return first_match(matches_of(ranked, truth)["union"]) if len(ranked) else None


def make_rec(folder, described):
    """RefCOCO's layout."""
    lines = []
    for name, (squares, phrases) in described.items():
        picture(folder / "images" / name, squares)
        lines += [json.dumps({"file": name, "phrase": one.text, "box": list(one.boxes[0])}) for one in phrases]
    (folder / "val.jsonl").write_text("\n".join(lines) + "\n")
    return folder

"""Top-1 and top-5 accuracy of a classifier on ImageNet images, in several ways of preparing them.

python recipes/accuracy.py [--model NAME] [--weights FILE] [--data ../shared/data/imagenet] [--limit 300] [--all]

The images that excite explains are not cropped, so that the map covers all of them; the usual evaluation crops the
middle. Both are measured (with --all each with both interpolations, and squashed to a square), because a classifier
that is wrong about what it sees has no map worth reading.
"""

import argparse
import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from excite.models import Preprocess, load
from excite.vocabulary import imagenet_wnids

IMAGENET = 1000  # its classes come first
DATA = Path(__file__).parents[2] / "shared" / "data" / "imagenet"


@dataclass(frozen=True)
class CenterCrop:
    """The usual evaluation: shorter side 256 instead of 224, then the square of 224 in the middle."""

    inner: Preprocess

    def __call__(self, picture: Image.Image) -> Tensor:
        """The middle of the image as a tensor."""
        side = self.inner.shorter_side
        whole = replace(self.inner, shorter_side=round(side * 256 / 224))(picture)
        top, left = (whole.shape[1] - side) // 2, (whole.shape[2] - side) // 2
        return whole[:, top : top + side, left : left + side]


def samples(data: Path, limit: int | None) -> Iterator[tuple[Path, int]]:
    """Each image with its class, in the order of the images' numbers."""
    classes = {wnid: unit for unit, wnid in enumerate(imagenet_wnids())}
    with (data / "LOC_val_solution.csv").open(encoding="utf-8", newline="") as file:
        rows = sorted((row["ImageId"], row["PredictionString"]) for row in csv.DictReader(file))
    for image, boxes in rows[:limit]:
        yield data / "val" / f"{image}.JPEG", classes[boxes.split()[0]]


def ways(preprocess: Preprocess) -> dict[str, Callable[[Image.Image], Tensor]]:
    """Ways of preparing an image, by name."""
    found: dict[str, Callable[[Image.Image], Tensor]] = {}
    for interpolation in ("bilinear", "bicubic"):
        ours = replace(preprocess, interpolation=interpolation)
        found[f"whole image, {interpolation}"] = ours
        found[f"squashed square, {interpolation}"] = replace(ours, square=True)
        found[f"center crop, {interpolation}"] = CenterCrop(ours)
    return found


@torch.inference_mode()
def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of val/ and LOC_val_solution.csv")
    parser.add_argument("--model", default="efficientnet-lite0", help="a name or a file, as in `excite attend`")
    parser.add_argument("--weights", help="a file of weights for it")
    parser.add_argument("--all", action="store_true", help="also other interpolations and squashed images")
    parser.add_argument("--limit", type=int, help="measure only the first images")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    classifier = load(options.model, weights=options.weights)
    if not isinstance(classifier.preprocess, Preprocess):
        raise SystemExit(f"{options.model} prepares its images in a way that this recipe cannot vary")

    ours = classifier.preprocess
    prepared = ways(ours) if options.all else {"whole image": ours, "center crop": CenterCrop(ours)}
    ranks: dict[str, list[int]] = {way: [] for way in prepared}
    for path, truth in samples(options.data, options.limit):
        with Image.open(path) as file:
            picture = file.convert("RGB")
        for way, prepare in prepared.items():
            scores = classifier.probabilities(classifier.logits(prepare(picture)[None]))[0, :IMAGENET]
            ranks[way].append(int((scores > scores[truth]).sum()))

    for way, above in ranks.items():
        top1, top5 = (100 * sum(rank < best for rank in above) / len(above) for best in (1, 5))
        default = "  <- default" if prepared[way] == classifier.preprocess else ""
        print(f"{way:28s} top-1 {top1:5.1f} %  top-5 {top5:5.1f} %  ({len(above)} images){default}")


if __name__ == "__main__":
    main()

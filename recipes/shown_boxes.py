"""How good are the point and the box that `excite attend` shows, for things of which an image shows exactly one?

python recipes/shown_boxes.py [--data ../shared/data/VOCdevkit] [--model everyday] [--pictures 200] [--skip 0]

For every class of which an image has exactly one object (difficult ones counted): does the point of the map lie in the
object's box, does the shown box overlap it by at least a half? Beside it the paper's box (above the mean of the map)
and that of the method `extent`. The row "an image each" has one class of each image, the first in the alphabet whose
object is not flagged as difficult; the others have all such classes. What was tuned (docs/boxes.md) was tuned on
images behind the first 200: --skip 200.
"""

import argparse
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from excite import attend, load
from excite.datasets import open_dataset
from excite.datasets.base import Dataset, Sample, Target
from excite.metrics.boxes import box_iou
from excite.metrics.statistics import Share
from excite.models import Classifier

DATA = Path(__file__).parents[2] / "shared" / "data" / "VOCdevkit"
EXTENT = {"method": "extent"}, 0.5
COLUMNS = ("point", "shown", "paper", "extent")


def images(dataset: Dataset) -> Iterator[tuple[Sample, list[Target]]]:
    """Each image with the classes of which it has exactly one object."""
    for sample in dataset:
        single = [target for target in sample.targets if len(target.instances) == 1]
        if single:
            yield sample, single


def measured(classifier: Classifier, dataset: Dataset, sample: Sample, targets: list[Target]) -> Iterator[Any]:
    """What is right for each class of an image."""
    concepts = [dataset.concept(target.concept, classifier.labels) for target in targets]  # type: ignore[arg-type]
    maps = attend(classifier, sample.path, concepts)
    how, alpha = EXTENT
    extents = attend(classifier, sample.path, concepts, **how)
    easy = next((target for target in targets if not target.instances[0].difficult), None)
    for target, found, extent in zip(targets, maps, extents, strict=True):
        (x0, y0, x1, y1), point = target.boxes[0], found.point()
        boxes = {"shown": found.box(), "paper": found.box(alpha=1.0), "extent": extent.box(alpha=alpha)}
        right = {name: box is not None and box_iou([box], target.boxes)[0, 0] >= 0.5 for name, box in boxes.items()}
        inside = point is not None and x0 <= point[0] < x1 and y0 <= point[1] < y1
        objects = sum(len(each.instances) for each in sample.targets)
        yield {
            "point": inside,
            **right,
            "boxes": len(found.boxes()),
            "an image each": target is easy,
            "all": True,
            "not difficult": not target.instances[0].difficult,
            "alone in the image": objects == 1,
        }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="images with boxes, as `excite bench` reads them")
    parser.add_argument("--split", default="val")
    parser.add_argument("--model", default="everyday", help="a name or a file, as in `excite attend`")
    parser.add_argument("--pictures", type=int, default=200, help="that many images")
    parser.add_argument("--skip", type=int, default=0, help="behind so many")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    classifier, dataset = load(options.model), open_dataset(options.data, options.split)
    chosen = islice(images(dataset), options.skip, options.skip + options.pictures)
    rows = [row for sample, targets in chosen for row in measured(classifier, dataset, sample, targets)]
    print(f"{'':20s}{'n':>5s}  " + "".join(f"{name:18s}" for name in COLUMNS) + "several boxes")
    for group in ("an image each", "not difficult", "all", "alone in the image"):
        some = [row for row in rows if row[group]]
        shares = [Share(sum(row[name] for row in some), len(some)).percent for name in COLUMNS]
        several = sum(row["boxes"] > 1 for row in some)
        print(f"{group:20s}{len(some):5d}  " + "".join(f"{share!s:18s}" for share in shares) + f"{several}")


if __name__ == "__main__":
    main()

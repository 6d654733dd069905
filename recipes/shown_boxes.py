"""How good are the point and the box that `excite attend` shows, for things of which an image shows exactly one?

python recipes/shown_boxes.py [--data ../shared/data/VOCdevkit] [--model everyday] [--images 601-1000] [--pictures 200]

The sample: an image with exactly one object (one box, difficult ones counted) of a class that the classifier knows; of
an image with several such classes, the first in the order of its annotations. Does the point of the map lie in the
object's box, does the shown box overlap it by at least a half? Beside it the paper's (above the mean of the map).
Images are numbered from 1 in the order of the split; what was tuned (docs/boxes.md) was tuned on val images 201 to 500.
"""

import argparse
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from PIL import ImageDraw

from excite import attend, load
from excite.datasets import open_dataset
from excite.datasets.base import Dataset, Sample, Target
from excite.datasets.voc import Voc, read_objects
from excite.errors import ConceptError
from excite.metrics.boxes import box_iou
from excite.metrics.statistics import Share
from excite.models import Classifier

DATA = Path(__file__).parents[2] / "shared" / "data" / "VOCdevkit"
COLUMNS = ("point", "shown", "paper")


def pairs(classifier: Classifier, dataset: Dataset, first: int, last: int) -> Iterator[tuple[Sample, Target, Any]]:
    """Each image with the first class that it has exactly one object of, and its concept."""
    for name in dataset.names[first - 1 : last]:
        sample = dataset.sample(name)
        for target in annotated_order(dataset, sample):
            try:
                concept = dataset.concept(target.concept, classifier.labels)  # type: ignore[arg-type]
            except ConceptError:
                continue
            yield sample, target, concept
            break


def annotated_order(dataset: Dataset, sample: Sample) -> list[Target]:
    """The targets with one object; those of VOC are sorted by name, their file is in the order of annotation."""
    single = [target for target in sample.targets if len(target.instances) == 1]
    if isinstance(dataset, Voc) and single:
        annotation = sample.path.parents[1] / "Annotations" / f"{sample.name}.xml"
        order = [each.name for each in read_objects(annotation, 1)[0]]
        single.sort(key=lambda target: order.index(target.concept))
    return single


def measured(classifier: Classifier, sample: Sample, target: Target, concept: Any, drawn: Path | None) -> Any:
    """What is right for one object."""
    (found,) = attend(classifier, sample.path, [concept])
    (x0, y0, x1, y1), point = target.boxes[0], found.point()
    boxes = {"shown": found.box(), "paper": found.box(alpha=1.0)}
    overlap = {name: float(box_iou([box], target.boxes)[0, 0]) if box else 0.0 for name, box in boxes.items()}
    if drawn:
        picture = found.overlay(style="contours", point=True, box=True)
        ImageDraw.Draw(picture).rectangle((x0, y0, x1, y1), outline="lime", width=2)
        picture.save(drawn / f"{sample.name}-{target.concept}-{overlap['shown']:.2f}.jpg")
    return {
        "point": point is not None and x0 <= point[0] < x1 and y0 <= point[1] < y1,
        **{name: value >= 0.5 for name, value in overlap.items()},
        "boxes": len(found.boxes()),
        "all": True,
        "alone in the image": sum(len(each.instances) for each in sample.targets) == 1,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="images with boxes, as `excite bench` reads them")
    parser.add_argument("--split", default="val")
    parser.add_argument("--model", default="everyday", help="a name or a file, as in `excite attend`")
    parser.add_argument("--images", default="601-1000", help="the first and the last image of the split")
    parser.add_argument("--pictures", type=int, default=200, help="at most so many of them")
    parser.add_argument("--draw", type=Path, help="a folder for the shown and (green) the annotated boxes")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.draw:
        options.draw.mkdir(parents=True, exist_ok=True)
    classifier, dataset = load(options.model), open_dataset(options.data, options.split)
    first, last = map(int, options.images.split("-"))
    chosen = islice(pairs(classifier, dataset, first, last), options.pictures)
    rows = [measured(classifier, *each, options.draw) for each in chosen]
    print(f"{'':20s}{'n':>5s}  " + "".join(f"{name:18s}" for name in COLUMNS) + "several boxes")
    for group in ("all", "alone in the image"):
        some = [row for row in rows if row[group]]
        shares = [Share(sum(row[name] for row in some), len(some)).percent for name in COLUMNS]
        several = sum(row["boxes"] > 1 for row in some)
        print(f"{group:20s}{len(some):5d}  " + "".join(f"{share!s:18s}" for share in shares) + f"{several}")


if __name__ == "__main__":
    main()

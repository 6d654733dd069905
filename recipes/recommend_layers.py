"""Which layer should the embedded classifier be read at? Measured on ImageNet pictures with boxes.

    python recipes/recommend_layers.py --data ../shared/data/imagenet --limit 300

For each layer and method: how often the maximum point lies in a box of the named class (pointing), and how often the
best box of the map misses the object (IoU below 0.5) with the threshold alpha that suits it best on half the pictures.
"""

import argparse
import csv
from collections import defaultdict
from pathlib import Path

import torch
from PIL import Image
from rich.console import Console
from rich.progress import track
from rich.table import Table

import excite
from excite.readouts.upsample import upsample
from excite.vocabulary import imagenet_wnids

ALPHAS = [0.5 * k for k in range(1, 13)]


def read_boxes(data: Path) -> dict[str, tuple[str, list[tuple[int, ...]]]]:
    """For each picture its class and boxes, from the challenge's own table."""
    boxes = {}
    with (data / "LOC_val_solution.csv").open() as lines:
        for row in csv.DictReader(lines):
            words = row["PredictionString"].split()
            numbers = [tuple(int(word) for word in words[k + 1 : k + 5]) for k in range(0, len(words), 5)]
            boxes[row["ImageId"]] = (words[0], numbers)
    return boxes


def overlap(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """Intersection over union of two boxes."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    inside = max(width, 0) * max(height, 0)
    return inside / ((one[2] - one[0]) * (one[3] - one[1]) + (other[2] - other[0]) * (other[3] - other[1]) - inside)


def best_overlaps(values: torch.Tensor, truth: list[tuple[int, ...]]) -> list[float]:
    """The overlap of the box of each threshold with the nearest true one."""
    answers = []
    for alpha in ALPHAS:
        above = values > alpha * values.mean()
        columns, rows = above.any(0).nonzero(), above.any(1).nonzero()
        if not len(columns):
            answers.append(0.0)
            continue
        box = (int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1)
        answers.append(max(overlap(box, other) for other in truth))
    return answers


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/imagenet"))
    parser.add_argument("--limit", type=int, default=300)
    parser.add_argument("--skip", type=int, default=0, help="leave out that many first: to check a choice on others")
    parser.add_argument("--size", type=int, default=0, help="shorter side; 0 for the classifier's own")
    parser.add_argument(
        "--layers", nargs="*", default=[*(f"blocks.{k}" for k in (4, 7, 9, 10, 11, 12, 13, 14, 15)), "head"]
    )
    options = parser.parse_args()
    classifier = excite.load()
    if options.size:
        from dataclasses import replace

        classifier = replace(classifier, preprocess=replace(classifier.preprocess, shorter_side=options.size))
    units = {wnid: unit for unit, wnid in enumerate(imagenet_wnids())}
    truth = read_boxes(options.data)
    hits: dict[tuple[str, str], list[bool]] = defaultdict(list)
    overlaps: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    masses: dict[tuple[str, str], list[float]] = defaultdict(list)
    for name in track(sorted(truth)[options.skip : options.skip + options.limit], description="maps"):
        wnid, boxes = truth[name]
        picture = Image.open(options.data / "val" / f"{name}.JPEG").convert("RGB")
        for method in ("mwp", "c-mwp"):
            for found in excite.attend(classifier, picture, units[wnid], layer=options.layers, method=method):
                key = (method, found.layer)
                point = found.point()
                hits[key].append(
                    point is not None and any(b[0] <= point[0] <= b[2] and b[1] <= point[1] <= b[3] for b in boxes)
                )
                overlaps[key].append(best_overlaps(upsample(found.values, picture.size), boxes))
                masses[key].append(found.mass)
    table = Table("method", "layer", "pointing %", "box error %", "alpha", "mass")
    for key, outcome in hits.items():
        good = torch.tensor(overlaps[key]) >= 0.5
        chosen = int(good[::2].float().mean(0).argmax())
        error = 100 * (1 - good[1::2, chosen].float().mean())
        pointing = 100 * sum(outcome) / len(outcome)
        mass = sum(masses[key]) / len(masses[key])
        table.add_row(*key, f"{pointing:.1f}", f"{error:.1f}", str(ALPHAS[chosen]), f"{mass:.3f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()

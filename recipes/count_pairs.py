"""What an annotated folder holds for the Pointing Game, and whether its masks agree with its boxes.

python recipes/count_pairs.py FOLDER [--split val] [--difficult FILE]

Prints how many pairs of an image and a category there are, how many are Difficult, and what pointing at the middle of
every image would score. Images that cannot be used are named, and counted nowhere else.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from excite.datasets import Dataset, Instance, Sample, open_dataset
from excite.datasets.difficult import is_difficult, read_difficult_list
from excite.errors import ExciteError
from excite.images import read_image
from excite.metrics.boxes import distance

Hits = dict[str, list[bool]]


def usable(dataset: Dataset) -> Iterator[tuple[Sample, tuple[int, int]]]:
    """The samples whose annotation and image are whole, with the size of the image."""
    for name in dataset.names:
        try:
            sample = dataset.sample(name)
            size = read_image(sample.path).size
            sample.check_size(size)
        except ExciteError as error:
            print(f"left out: {error}")
        else:
            yield sample, size


def beside_its_box(instance: Instance, size: tuple[int, int]) -> float | None:
    """By how many pixels the box drawn around a mask differs from the annotated one, at most."""
    if instance.mask is None:
        return None
    y, x = np.nonzero(instance.mask.pixels(size))
    if len(x) == 0:
        return float("inf")
    drawn = (x.min(), y.min(), x.max() + 1, y.max() + 1)
    return float(max(abs(one - other) for one, other in zip(drawn, instance.box, strict=True)))


def mean(hits: Hits) -> str:
    """The mean over the categories that occur, in per cent."""
    return f"{100 * np.mean([np.mean(one) for one in hits.values()]):.1f}" if hits else "-"


def count(hits: Hits) -> int:
    """How many pairs."""
    return sum(map(len, hits.values()))


def main() -> None:
    """Count, and print what was counted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--split")
    parser.add_argument("--difficult", type=Path)
    options = parser.parse_args()
    dataset = open_dataset(options.folder, options.split)
    listed = read_difficult_list(options.difficult, dataset) if options.difficult else None
    pictures, flagged, gaps = 0, 0, []
    every: Hits = defaultdict(list)
    hard: Hits = defaultdict(list)
    for sample, size in usable(dataset):
        pictures += 1
        for target in sample.targets:
            gaps += [gap for one in target.instances if (gap := beside_its_box(one, size)) is not None]
            if target.difficult:
                flagged += 1
                continue
            hit = distance((size[0] // 2, size[1] // 2), target, size) <= dataset.tolerance
            every[target.concept].append(hit)
            if (sample.name, target.concept) in listed if listed is not None else is_difficult(sample, target):
                hard[target.concept].append(hit)
    print(f"{dataset.name} {dataset.split}: {pictures} images, {count(every)} pairs, {count(hard)} of them difficult")
    print(f"{len(every)} categories, {len(hard)} with difficult pairs; {flagged} flagged by VOC and not asked for")
    print(f"pointing at the middle: {mean(every)} of all, {mean(hard)} of the difficult")
    if gaps:
        near = np.mean(np.array(gaps) <= 2)
        print(f"{len(gaps)} masks, {gaps.count(float('inf'))} empty; {near:.1%} fill their boxes to 2 pixels")


if __name__ == "__main__":
    main()

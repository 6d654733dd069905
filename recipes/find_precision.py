"""What `excite find` gives on the COCO pictures of ../shared/data, beside the classifier's own ranking in float32.

python recipes/find_precision.py [--model words] [--data ../shared/data/coco] [--limit N] [--workers 2] [--out FOLDER]
python recipes/find_precision.py --colours [--out FOLDER]
python recipes/find_precision.py --synthetic 100000

The first prints the average precision of each category by both rankings, that of the index as its photos are listed,
the time and the size of the index, and the time of a question. The second asks for things of a colour, and prints the
average precision among the 60 most probable photos of the thing, without and with the colour; those whose captions say
it ("a yellow train") are right. The third makes an index of so many photos that do not exist, and prints its size and
the time of questions, the start of Python and torch left out.
"""

import argparse
import json
import re
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from excite.images import read_image
from excite.metrics.ranking import average_precision
from excite.models import Classifier, load
from excite.models.classifier import identity
from excite.search import PhotoIndex
from excite.search.index import IndexFile, Photo
from excite.search.query import ask, read_question

DATA = Path(__file__).parents[2] / "shared" / "data" / "coco"
COLOURED = """
black cat, white cat, white dog, brown horse, brown dog, red hydrant, yellow hydrant, yellow train, blue train,
black horse, red truck, blue umbrella
"""
QUESTIONS = ("dog", "surfboard", "a man on a bike with a dog", "person -dog", "musical instrument", "organism")


def labels_of(data: Path) -> dict[str, set[str]]:
    """The categories in each picture of both splits, by split and name."""
    lines = (data / "annotations/labels_train2017.jsonl").read_text(encoding="utf-8").splitlines()
    found = {f"train2017/{entry['file']}": set(entry["labels"]) for entry in map(json.loads, lines)}
    content = json.loads((data / "annotations/instances_val2017.json").read_text(encoding="utf-8"))
    names = {entry["id"]: entry["name"] for entry in content["categories"]}
    files = {entry["id"]: f"val2017/{entry['file_name']}" for entry in content["images"]}
    found |= {file: set() for file in files.values()}
    for entry in content["annotations"]:
        found[files[entry["image_id"]]].add(names[entry["category_id"]])
    return found


def own_probabilities(classifier: Classifier, data: Path, pictures: list[str]) -> torch.Tensor:
    """The probabilities of all outputs for each picture, one after the other, in float32."""
    with torch.inference_mode():
        inputs = (classifier.prepared(read_image(data / picture))[None] for picture in pictures)
        return torch.cat([classifier.probabilities(classifier.module(each)) for each in inputs])


def indexed_pictures(model: str, data: Path, pictures: list[str], workers: int, folder: Path) -> PhotoIndex:
    """The index of pictures, which are linked into one folder."""
    for picture in pictures:
        link = folder / "photos" / picture
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to((data / picture).resolve())
    index = PhotoIndex(folder / "photos", load(model), file=folder / f"{model}.sqlite", thumbnails=False)
    start = time.perf_counter()
    print(index.update(workers=workers), f"in {time.perf_counter() - start:.1f} s with {workers} workers")
    return index


def measure_colours(index: PhotoIndex, data: Path) -> None:
    """Compare the rankings without and with a colour."""
    lines = (data / "annotations/labels_train2017.jsonl").read_text(encoding="utf-8").splitlines()
    captions = {entry["file"]: " ".join(entry["captions"]).lower() for entry in map(json.loads, lines)}
    every = []
    for phrase in COLOURED.split(","):
        colour, thing = phrase.split()
        right = re.compile(rf"\b{colour}(?: \w+)? {thing}\b")
        found = []
        for words in (thing, f"a {colour} {thing}"):
            names = [one.path.name for one in index.query(words, most=60).matches]
            truth = [bool(right.search(captions.get(name, ""))) for name in names]
            found.append(average_precision(range(len(names), 0, -1), truth) or 0.0)
        every.append(found)
        print("{:16s} {:.3f} {:.3f}".format(phrase.strip(), *found), flush=True)
    print("mean, without and with the colour: {:.3f} {:.3f}".format(*np.mean(every, axis=0)))


def measure(index: PhotoIndex, data: Path, truth: dict[str, set[str]], pictures: list[str]) -> None:
    """Compare both rankings."""
    classifier = index.classifier
    start = time.perf_counter()
    index.update()
    print(f"looking for changes: {time.perf_counter() - start:.2f} s")
    print(f"size: {index.file.path.stat().st_size / len(index):.0f} bytes a photo")
    own, differences, seconds, means = own_probabilities(classifier, data, pictures), [], [], []
    for category in sorted(set().union(*(truth[picture] for picture in pictures))):
        start = time.perf_counter()
        index.query(category, hints=False)
        seconds.append(time.perf_counter() - start)
        answer = index.query(category, most=len(pictures), hints=False)
        there = [category in truth[picture] for picture in pictures]
        place = {str(one.path.relative_to(index.folder)): place for place, one in enumerate(answer.matches)}
        units = answer.question.concepts[0].units
        plain = average_precision([classifier.chance(row, units) for row in own], there)
        indexed = average_precision([-place[picture] for picture in pictures], there)
        differences.append(abs(plain - indexed))
        means.append((plain, indexed))
        print(f"{category:16s} {plain:.4f} {indexed:.4f} {indexed - plain:+.5f}")
    print("mean average precision, classifier and index: {:.4f} {:.4f}".format(*np.mean(means, axis=0)))
    print(f"largest difference: {max(differences):.5f}")
    print(f"a question to {len(pictures)} photos: {1000 * statistics.median(seconds):.1f} ms (median)")


def measure_synthetic(model: str, count: int, folder: Path) -> None:
    """Time questions to an index of photos that do not exist."""
    classifier, random = load(model), np.random.default_rng(0)
    file = IndexFile(folder / f"synthetic-{count}.sqlite", identity(classifier), fresh=False)
    codes = np.clip(random.normal(85, 25, (2048, len(classifier.labels or ()))), 0, 255).astype(np.uint8)
    for first in range(len(file.photos()), count, len(codes)):
        numbers = range(first, min(first + len(codes), count))
        names = [f"2024/summer holiday/IMG_{number:06d}.jpg".encode() for number in numbers]
        photos = [
            Photo(number, name, 3_000_000, 10**18, random.bytes(16))
            for number, name in zip(numbers, names, strict=True)
        ]
        file.add(photos, list(np.roll(codes, first, axis=1)[: len(photos)]), [None] * len(photos))
    file.pack()
    print(f"{count} photos: {file.path.stat().st_size / count:.0f} bytes a photo")
    index = PhotoIndex.__new__(PhotoIndex)
    index.folder, index.classifier, index.file = folder, classifier, file
    for text in QUESTIONS:
        question, took = read_question(text, index.labels), []
        for _ in range(5):
            start, busy = time.perf_counter(), time.process_time()
            ask(index, question, most=20, at_least=0, progress=lambda items, *_: items)
            took.append((time.perf_counter() - start, time.process_time() - busy))
        units = [len(concept.units) for concept in question.concepts]
        wall, cpu = (statistics.median(each) for each in zip(*took, strict=True))
        print(f"{text!r}, units {units}: median {wall:.3f} s, {cpu:.3f} s of the processor")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="words")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, help="where the index is kept; a temporary folder if none")
    parser.add_argument("--colours", action="store_true", help="questions with colours")
    parser.add_argument("--synthetic", type=int, metavar="N", help="an index of N photos that do not exist")
    options = parser.parse_args()
    folder = options.out or Path(tempfile.mkdtemp())
    if options.synthetic:
        measure_synthetic(options.model, options.synthetic, folder)
        return
    truth = labels_of(options.data)
    pictures = [picture for picture in sorted(truth) if (options.data / picture).is_file()][: options.limit]
    index = indexed_pictures(options.model, options.data, pictures, options.workers, folder)
    measure_colours(index, options.data) if options.colours else measure(index, options.data, truth, pictures)


if __name__ == "__main__":
    main()

"""How long does it take to ground the five captions of an image, and what part of it is scoring?

python recipes/grounding_time.py [--data ../shared/data/coco] [--pictures 20] [--model words] [--method excite]

Each image is read, its regions proposed, looked at, and all five captions ranked, as `excite.ground` does it. Printed
are medians and the slowest; the first image, which also warms up the libraries, is told apart.
"""

import argparse
import json
import statistics
import time
from itertools import pairwise
from pathlib import Path

import excite
from excite.grounding import PhraseSession, Scorer
from excite.grounding.ground import METHOD, rank
from excite.grounding.proposals import find_proposer
from excite.images import read_image
from excite.methods import find_method
from excite.vocabulary import read_phrase

ROOT = Path(__file__).parents[1]


def captioned(data: Path) -> list[tuple[Path, list[str]]]:
    """The images of COCO's validation set, each with its captions."""
    content = json.loads((data / "annotations/captions_val2017.json").read_text(encoding="utf-8"))
    captions: dict[int, list[str]] = {}
    for one in content["annotations"]:
        captions.setdefault(one["image_id"], []).append(one["caption"])
    return [(data / "val2017" / image["file_name"], captions[image["id"]]) for image in content["images"]]


def timed(classifier: excite.Classifier, path: Path, captions: list[str], method: str) -> dict[str, float]:
    """Seconds spent in each part."""
    marks = [time.perf_counter()]
    picture = read_image(path)
    scorer = Scorer(find_proposer("hierarchy").of(picture, path.name, path))
    marks.append(time.perf_counter())
    chosen = find_method(method)
    looked = PhraseSession(classifier, picture, [chosen])
    maps = looked.phrase_maps(chosen, [read_phrase(text, looked.labels) for text in captions])
    marks.append(time.perf_counter())
    for found in maps:
        rank(scorer, found)
    marks.append(time.perf_counter())
    proposing, looking, scoring = (later - sooner for sooner, later in pairwise(marks))
    return {"proposing": proposing, "looking": looking, "scoring": scoring, "in all": marks[-1] - marks[0]}


def main() -> None:
    """Time them and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data/coco")
    parser.add_argument("--pictures", type=int, default=20)
    parser.add_argument("--model", default="words")
    parser.add_argument("--method", default=METHOD)
    options = parser.parse_args()
    classifier = excite.load(options.model)
    pictures = captioned(options.data)[: options.pictures + 1]
    first, *times = [timed(classifier, path, captions[:5], options.method) for path, captions in pictures]
    print(f"{'seconds':10s} first  median  slowest of {len(times)}")
    for part, once in first.items():
        each = [one[part] for one in times]
        print(f"{part:10s} {once:5.2f}  {statistics.median(each):6.3f}  {max(each):7.3f}")
    share = statistics.median(one["scoring"] / one["in all"] for one in times)
    print(f"scoring is {share:.1%} of the time")


if __name__ == "__main__":
    main()

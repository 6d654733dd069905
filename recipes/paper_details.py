"""What the details of the paper's Pointing Game are worth: the same images, an output layer, and one detail changed.

python recipes/paper_details.py MODEL [--data ../shared/data/VOCdevkit] [--limit 500] [--out excite-out/details]

MODEL is what `excite finetune` or `excite reproduce table1` made of one of the paper's networks. A line for each
detail: its score, and its difference from the paper's way on the same images with the 95 % interval.

- the paper's way: every window of the image answers, and the signal starts at the windows by their share of the answer
- one answer: the network pools over the whole image, so the signal starts everywhere alike
- anti-aliased: images are made smaller with a filter
- square: images are squashed to 224 x 224
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from excite.cli.console import print_columns, progress
from excite.datasets import open_dataset
from excite.experiments.pointing.run import PointingGame, differences, tally
from excite.models import Classifier, Preprocess, load

DATA = Path(__file__).parents[2] / "shared" / "data" / "VOCdevkit"
PAPERS = "the paper's way"


def ways(model: str) -> Iterator[tuple[str, Classifier]]:
    """The classifier, and copies that differ in a detail."""
    papers = load(model)
    if not isinstance(papers.preprocess, Preprocess):
        raise SystemExit(f"{model} prepares its images in a way that this recipe cannot vary")
    yield PAPERS, papers
    yield "one answer", load(model, fully_convolutional=False)
    yield "anti-aliased", replace(papers, preprocess=replace(papers.preprocess, antialias=True))
    yield "square", replace(papers, preprocess=replace(papers.preprocess, square=True))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="the folder of a fine-tuned classifier")
    parser.add_argument("--data", type=Path, default=DATA, help="a folder that `excite bench pointing` reads")
    parser.add_argument("--methods", default="c-mwp,mwp", help="names of `excite ls methods`")
    parser.add_argument("--limit", type=int, default=500, help="use the first images only")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("excite-out/details"), help="where records are kept")
    options = parser.parse_args()

    joined: dict[str, dict[str, object]] = {}  # the records of all ways as those of one game
    for way, classifier in ways(options.model):
        dataset = open_dataset(options.data, "val")
        game = PointingGame(classifier, dataset, options.methods.split(","), limit=options.limit)
        kept = options.out / way.replace(" ", "-").replace("'", "")
        for record in progress(game.records(kept, options.workers), len(game.tasks), way):
            for target in record["targets"]:
                for found in target["maps"]:
                    found |= {"method": f"{found['method']}, {way}", "layer": ""}
            known = joined.setdefault(record["image"], record)
            if known is not record:
                for one, more in zip(known["targets"], record["targets"], strict=True):
                    one["maps"] += more["maps"]

    records, tolerance = list(joined.values()), dataset.tolerance
    lines = []
    for row in tally(records, "", tolerance):
        method, _, _ = row.method.partition(", ")
        (gap,) = differences(records, [(row.key, (f"{method}, {PAPERS}", ""))], tolerance)
        lines.append(
            {
                "method": row.method,
                "all %": row.all,
                "difficult %": row.difficult,
                "all": gap.all,
                "difficult": gap.difficult,
            }
        )
    print_columns(lines)


if __name__ == "__main__":
    main()

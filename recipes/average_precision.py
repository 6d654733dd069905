"""Mean average precision of a fine-tuned classifier, seeing whole images of a split it was not trained on.

python recipes/average_precision.py MODEL --data ../shared/data/VOCdevkit --split val [--out FOLDER] [--workers 2]

MODEL is a folder that `excite finetune` has made, or any classifier whose labels name the categories of the data.
"""

import argparse
import tempfile
from pathlib import Path

from excite.jobs import ResultStore
from excite.jobs.loop import run
from excite.metrics.ranking import mean_average_precision
from excite.models import load
from excite.training.examples import read_examples
from excite.training.finetune import CategoryScorer, precisions


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--split", default="val")
    parser.add_argument("--out", type=Path, help="where to keep what was found; a run that was stopped goes on there")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()

    classifier = load(options.model)
    examples = read_examples(options.data, options.split).of(classifier.labels)
    store = ResultStore((options.out or Path(tempfile.mkdtemp())) / "scores.jsonl", required=("picture", "scores"))
    found = precisions(examples, run(CategoryScorer(classifier), examples.pictures, store, workers=options.workers))
    for category, precision in found.items():
        print(f"{category:20s} {precision:.3f}" if precision is not None else f"{category:20s} nowhere")
    mean = mean_average_precision(list(found.values()))
    print(f"mean over {len(found)} categories, {len(examples.pictures)} pictures: {mean:.4f}")


if __name__ == "__main__":
    main()

"""Train the everyday objects' output layer of the embedded classifier, and say how good it is.

python recipes/everyday_head.py [--data ../shared/data/coco] [--out excite-out/everyday] [--workers 2]

The output layer alone is trained, on nine tenths of the images (those whose names' hashes say so); the mean average
precision is that of the file as it is written, in half precision, on the other tenth. Stopped, it goes on where it was.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from safetensors.torch import save

from excite.io.files import atomic_write
from excite.jobs import Entry, ResultStore
from excite.jobs.loop import run
from excite.metrics.ranking import mean_average_precision
from excite.models import load
from excite.models.architectures import EVERYDAY_UNITS, head_labels
from excite.training.examples import read_examples
from excite.training.finetune import CategoryScorer, FineTuning, precisions
from excite.training.sgd import SGDOptions
from excite.vocabulary import Labels

ROOT = Path(__file__).parents[1]
HELD_OUT = 0.1
SGD = SGDOptions()  # the command's own defaults: other decays and rates were no better on a tenth of the nine tenths
VIEWS = 4


def write_head(folder: Path) -> Path:
    """The output layer of a classifier that was fine-tuned, as the package has it."""
    layer = load(folder).module.get_submodule("classifier")
    content = save({name: tensor.detach().half().contiguous() for name, tensor in layer.state_dict().items()})
    path = ROOT / "src/excite/models/heads/everyday.safetensors"
    return atomic_write(path, lambda file: print(f"{path}: {file.write(content)} bytes"))


def everyday_scores(entries: Iterator[Entry]) -> Iterator[Entry]:
    """What was found about the everyday objects."""
    for entry in entries:
        yield {**entry, "scores": [entry["scores"][unit] for unit in EVERYDAY_UNITS]}


def main() -> None:
    """Train, write and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data/coco")
    parser.add_argument("--out", type=Path, default=Path("excite-out/everyday"))
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()

    labels = Labels(head_labels("everyday"))
    kept, aside = read_examples(options.data, "train2017").of(labels).split(HELD_OUT)
    about = FineTuning("efficientnet-lite0", kept, options.out, sgd=SGD, views=VIEWS, workers=options.workers).train()
    print(f"{about['epochs']} epochs on {about['pictures']} images, training loss {about['loss']:.4f} an image")
    write_head(options.out)
    store = ResultStore(options.out / "everyday.jsonl", required=("picture", "scores"))
    scored = run(CategoryScorer(load("everyday")), aside.pictures, store, workers=options.workers)
    each = precisions(aside, everyday_scores(scored))
    for category, precision in each.items():
        print(f"{category:16s} {'nowhere' if precision is None else f'{precision:.3f}'}")
    mean = mean_average_precision(list(each.values()))
    print(f"mean over {len(each)} categories, {len(aside.pictures)} pictures: {mean:.4f}")


if __name__ == "__main__":
    main()

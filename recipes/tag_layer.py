"""What an output layer of 18,157 tags costs: one concept's map beside that of a layer of 1000, interleaved.

python recipes/tag_layer.py [--model efficientnet-lite0] [--rounds 15]

Both have random weights in the output layer; the ratio is of CPU time, by medians, with the middle half of all rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch
from PIL import Image

import excite
from excite.models import find_card, load
from excite.training.output_layer import with_new_output
from excite.vocabulary import Labels


def classifier(model: str, outputs: int) -> excite.Classifier:
    """The network with so many outputs, each true or not."""
    base = load(model)
    network, _ = with_new_output(find_card(model), base.module, outputs)
    labels = Labels.numbered(outputs)
    return excite.wrap(network, labels=labels, preprocess=base.preprocess, layer=base.layer, multilabel=True)


def seconds(one: excite.Classifier, picture: Image.Image, concept: int, method: str) -> float:
    """The CPU time of one map, the forward pass in it."""
    started = time.process_time()
    excite.attend(one, picture, concept, method=method)
    return time.process_time() - started


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="efficientnet-lite0")
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    torch.set_num_threads(1)
    few, many = (classifier(given.model, outputs) for outputs in (1000, 18_157))
    random = np.random.default_rng(0)
    picture = Image.fromarray(random.integers(0, 256, (224, 335, 3), dtype=np.uint8))
    for method in ("mwp", "c-mwp"):
        ratios = []
        for number in range(given.rounds + 2):
            pair = seconds(few, picture, number, method), seconds(many, picture, number, method)
            ratios.append(pair[1] / pair[0])
        low, middle, high = statistics.quantiles(ratios[2:], n=4)  # the first rounds split the weights
        print(f"{method}: 18,157 outputs cost {middle:.2f} times as much as 1000 ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()

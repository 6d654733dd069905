"""Images and networks for several tests of classifiers."""

import csv

import numpy as np
import torch
from PIL import Image
from torch import nn

from excite.vocabulary import imagenet_wnids


def noise(width, height):
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


def answers(network, *size):
    """Its output for two images, of 64 x 64 pixels where no size is given."""
    pictures = torch.randn(2, 3, *(size or (64, 64)), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return network.eval()(pictures)


def lively(network):
    """Norms that have seen something."""
    torch.manual_seed(0)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(std=0.1)
            module.running_var.uniform_(0.5, 1.5)
            nn.init.uniform_(module.weight, 0.3, 0.7)
    return network.eval()


def photographs(shared_data, step, number):
    """Photographs of ImageNet, each with its class and its boxes: every so many of the sorted ones."""
    folder, units = shared_data / "imagenet", {wnid: unit for unit, wnid in enumerate(imagenet_wnids())}
    with (folder / "LOC_val_solution.csv").open(newline="") as file:
        rows = sorted((row["ImageId"], row["PredictionString"].split()) for row in csv.DictReader(file))
    for name, words in rows[::step][:number]:
        boxes = [tuple(map(float, words[start + 1 : start + 5])) for start in range(0, len(words), 5)]
        with Image.open(folder / "val" / f"{name}.JPEG") as file:
            yield file.convert("RGB"), units[words[0]], boxes


def top(classifier, picture, number=1):
    """The most probable classes of an image."""
    with torch.inference_mode():
        logits = classifier.module(classifier.preprocess(picture)[None])
    return classifier.probabilities(logits)[0].topk(number).indices.tolist()

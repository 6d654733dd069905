"""A classifier small enough to be trained in a test, and images to train it on."""

import torch
from annotated import make_voc, scenes
from torch import nn

from excite.models import MODELS, Card, Preprocess
from excite.models.weights import filled_at_random
from excite.vocabulary import Labels

SIZE = 28
NAME = "tiny"


class Tiny(nn.Sequential):
    """Sees some colours and edges, and answers in 3 classes unless told otherwise."""

    def __init__(self, classes=None):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2)
        self.norm = nn.BatchNorm2d(8)
        self.relu = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flat = nn.Flatten()
        self.out = nn.Linear(8, 3 if classes is None else classes)


def trained():
    """Its first three features are how red, green and blue the image is."""
    network = filled_at_random(Tiny)
    with torch.no_grad():
        network.conv.weight.zero_()
        network.conv.bias.zero_()
        network.conv.weight[:3, :, 1, 1] = 20 * torch.eye(3)
    return network


TINY = Card(
    name=NAME,
    build=Tiny,
    preprocess=Preprocess(shorter_side=SIZE, mean=127, scale=1 / 64),
    labels=lambda: Labels(["one", "two", "three"]),
    layers=("relu",),
    description="a network for tests",
    source="nowhere",
    pretrained=trained,
)


def know_tiny(monkeypatch):
    """Let excite know the tiny classifier by its name."""
    monkeypatch.setitem(MODELS, NAME, TINY)
    return NAME


def make_train(folder, pictures=12):
    """VOC's layout with images of coloured squares to learn from."""
    return make_voc(folder, scenes(pictures), split="train")

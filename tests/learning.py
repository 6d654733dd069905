"""A classifier small enough to be trained in a test, and images to train it on."""

import os
import time

import numpy as np
import torch
from annotated import make_voc, scenes
from PIL import Image
from torch import nn

from excite.models import MODELS, Card, Preprocess
from excite.models.weights import filled_at_random
from excite.tags.corpus import Corpus
from excite.tags.images import open_images
from excite.training.tags.loop import TrainingOptions
from excite.training.tags.model import distributed
from excite.training.tags.run import TagTraining
from excite.vocabulary import Labels

SIZE = 28
NAME = "tiny"
QUICK = TrainingOptions(epochs=2, batch=12, rate=0.05, held_out=0.25, checks=2)


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


def coloured(folder, count, words):
    """Draw so many images of a colour with noise, and give the name and the colour's word of each."""
    random = np.random.default_rng(0)
    folder.mkdir(exist_ok=True)
    for k in range(count):
        colour = 20 + 200 * np.eye(3)[k % 3]
        noise = random.integers(-20, 20, (32, 40, 3))
        Image.fromarray((noise + colour).clip(0, 255).astype(np.uint8)).save(folder / f"{k}.png")
        yield f"{k}.png", words[k % 3]


class Stopped(Exception):
    pass


def stopping_after(entries):
    """Watch so many entries in all, then end as abruptly as Python can."""
    left = [entries]

    def progress(items, _total, _what):
        for item in items:
            left[0] -= 1
            if left[0] < 0:
                raise Stopped
            yield item

    return progress


def tag_training(folder, out, options=QUICK, **more):
    """The training of a tag classifier on a folder with a corpus and its images."""
    more = {"min_count": 2, "save_every": 0, "model": NAME, **more}
    return TagTraining(Corpus(folder / "c.parquet"), open_images(folder / "photos"), folder / out, options, **more)


def train_tags(folder, out, options, pause, environment):
    """The same in a process of its own, with a pause before each step, so that there is time to kill it."""

    def slowly(items, _total, _what):
        for item in items:
            time.sleep(pause)
            yield item

    os.environ.update(environment)
    torch.set_num_threads(1)
    MODELS[NAME] = TINY
    with distributed() as processes:
        tag_training(folder, out, options, processes=processes, progress=slowly).train()

"""A stand-in dual encoder: a small CNN beside a bag of words, with random weights by a seed."""

import zlib

import torch
from torch import nn

from excite.models.classifier import Preprocess
from excite.models.dual_encoder import DualEncoder, TextTower
from excite.models.loading import wrap
from excite.vocabulary import Labels

SIZE, WORDS, LONGEST, SIDE = 12, 97, 16, 64


class BagOfWords(TextTower):
    """The sum of a vector for each word; ``runs`` counts the texts that were embedded."""

    def __init__(self, seed=0):
        torch.manual_seed(seed)
        self.network = nn.EmbeddingBag(WORDS, SIZE, mode="sum", padding_idx=0)
        self.runs = 0

    def tokens(self, texts):
        words = [[1 + zlib.crc32(word.encode()) % (WORDS - 1) for word in text.split()] for text in texts]
        return torch.tensor([(each + [0] * LONGEST)[:LONGEST] for each in words])

    def embed(self, tokens):
        self.runs += len(tokens)
        return self.network(tokens)


def image_tower():
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 5, 4, 2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, SIZE)),
    )


def dual_encoder(labels=("cat", ["dog", "hound"], "red car"), *, bias=None, seed=0):
    """The network: of CLIP's kind, or with a bias of SigLIP's."""
    torch.manual_seed(seed)
    image = image_tower()
    return DualEncoder(image, BagOfWords(seed), scale=20.0, bias=bias, labels=Labels(labels)).eval()


def open_classifier(*given, **more):
    """A classifier of any words."""
    return wrap(dual_encoder(*given, **more), preprocess=Preprocess(shorter_side=SIDE), name="stand-in")

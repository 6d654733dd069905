"""A stand-in dual encoder: a small CNN that sees red, green and blue, beside a bag of words that knows their names."""

import zlib

import torch
from annotated import COLOURS, SIDE
from torch import nn

from excite.models import wrap
from excite.models.classifier import Preprocess
from excite.models.dual_encoder import DualEncoder, TextTower
from excite.vocabulary import Labels

WORDS, LONGEST = 97, 16
FIRST = len(COLOURS) + 1  # the number of the first word that is no colour; 0 is none
CENTRED = 3 * torch.eye(3) - 1  # a colour less the others


class BagOfWords(TextTower):
    """The sum of a vector for each word: far for a colour, near and by chance for all others."""

    def __init__(self, seed=0):
        torch.manual_seed(seed)
        self.network = nn.EmbeddingBag(WORDS, len(COLOURS), mode="sum", padding_idx=0)
        with torch.no_grad():
            self.network.weight.mul_(0.1)[0] = 0
            self.network.weight[1:FIRST] += CENTRED
        self.embedded = 0  # texts so far

    def tokens(self, texts):
        return torch.tensor([([number(word) for word in text.split()] + [0] * LONGEST)[:LONGEST] for text in texts])

    def embed(self, tokens):
        self.embedded += len(tokens)
        return self.network(tokens)


def number(word):
    word = word.rstrip(".")
    names = list(COLOURS)
    return 1 + names.index(word) if word in names else FIRST + zlib.crc32(word.encode()) % (WORDS - FIRST)


def image_tower():
    """Layers "1" and "2" are maps, as those of `annotated.colour_classifier`."""
    tower = nn.Sequential(
        *(nn.Conv2d(3, 3, 1, bias=False), nn.ReLU(), nn.AvgPool2d(SIDE // 4)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 3, bias=False)),
    )
    with torch.no_grad():
        tower[0].weight.copy_(torch.eye(3)[:, :, None, None])
        tower[5].weight.copy_(CENTRED)
    return tower


def dual_encoder(labels=("red", "green", ["cat", "hound"]), *, bias=None, seed=0):
    """The network: of CLIP's kind, or with a bias of SigLIP's."""
    return DualEncoder(image_tower(), BagOfWords(seed), scale=10.0, bias=bias, labels=Labels(labels)).eval()


def open_classifier(*given, **more):
    """A classifier of any words."""
    prepare = Preprocess(shorter_side=SIDE // 2, mean=0, scale=1 / 255, interpolation="bilinear")
    return wrap(dual_encoder(*given, **more), preprocess=prepare, name="stand-in", verify=False)

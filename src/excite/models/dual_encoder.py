"""Dual encoders: classifiers whose output layer is written by a text tower, as in CLIP and SigLIP (docs/any-words.md).

    logit(phrase) = scale * cos(image embedding, row of the phrase) + bias

The image embedding is divided by its norm, and a linear layer follows: one row for each default label and each phrase
asked for so far. So Excitation Backprop applies as to any classifier, and the dual unit of a phrase (paper, 3.3) has
the negative of its row. The text tower only writes rows; the top-down pass never goes through it.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from excite.errors import ConceptError, ExciteError, ModelError
from excite.io.cache import fingerprint
from excite.io.fetch import cache_folder
from excite.io.files import save_npy
from excite.models.architectures import head_labels
from excite.models.classifier import Classifier, Preprocess, network_identity
from excite.propagation.taps import main_output
from excite.vocabulary import Concept, Labels
from excite.vocabulary.open import OpenLabels

TEMPLATES = ("{}", "a photo of {}.", "a photo of a {}.", "a picture with {} in it.")
ARTICLE = " a {}"  # in a template for phrases without a determiner
DETERMINERS = frozenset("a an the this that these those some two three four many several no".split())
BATCH = 64  # texts that go through the text tower together
CACHE = "rows"  # the folder of written rows in the cache
DEFAULT_LABELS = "everyday"  # the 80 objects of COCO


def prompts(phrase: str) -> list[str]:
    """The texts whose embeddings are averaged for a phrase.

    Example:
        >>> prompts("dog")[1:3], len(prompts("two dogs"))
        (['a photo of dog.', 'a photo of a dog.'], 3)
    """
    determined = phrase.partition(" ")[0] in DETERMINERS
    return [template.format(phrase) for template in TEMPLATES if not (determined and ARTICLE in template)]


class TextTower(ABC):
    """The text tower of a dual encoder with its tokenizer; it stays where it was loaded, usually on the CPU.

    Attributes:
        network: The modules and weights on which the embeddings depend.
    """

    network: nn.Module

    def __deepcopy__(self, _memo: object) -> Self:
        return self  # it is only read

    @abstractmethod
    def tokens(self, texts: list[str]) -> Tensor:
        """The tokens of some texts as numbers [texts, ...], always of the same shape; longer texts may be cut off."""

    @abstractmethod
    def embed(self, tokens: Tensor) -> Tensor:
        """The embeddings [texts, size] of tokens."""

    @cached_property
    def identity(self) -> str:
        """Identifies the tower."""
        return network_identity(self.network)

    def check(self, text: str) -> None:
        """A ConceptError where a phrase is longer than the tower reads: it would be cut off without a word."""
        longest = max(prompts(text), key=len)
        if torch.equal(self.tokens([longest]), self.tokens([f"{longest} too"])):
            start = text if len(text) <= 60 else f"{text[:60]}..."
            raise ConceptError(f"The phrase {start!r} is longer than the text tower reads: write fewer words.")

    def write(self, texts: Sequence[str]) -> Tensor:
        """The rows of phrases: the mean of their prompts' embeddings, each and all of length 1. They are cached."""
        tokens = [self.tokens(prompts(text)) for text in texts]
        rows = [_read(self._path(each)) for each in tokens]
        missing = [k for k, row in enumerate(rows) if row is None]
        for start in range(0, len(missing), BATCH // len(TEMPLATES)):
            some = missing[start : start + BATCH // len(TEMPLATES)]
            for k, row in zip(some, self._written([tokens[k] for k in some]), strict=True):
                rows[k] = row
                with suppress(ExciteError):  # where the cache cannot be written, a row is computed again next time
                    save_npy(row, self._path(tokens[k]))
        return torch.stack([row for row in rows if row is not None])

    def _written(self, tokens: Sequence[Tensor]) -> Iterator[Tensor]:
        """The rows of phrases whose prompts have these tokens."""
        with torch.no_grad():
            embeddings = self.embed(torch.cat(list(tokens))).float().cpu()
        if not embeddings.isfinite().all():
            raise ModelError("The text tower gives embeddings that are no finite numbers: its weights are broken.")
        each = torch.split(functional.normalize(embeddings, dim=-1), [len(one) for one in tokens])
        return (functional.normalize(some.mean(dim=0), dim=-1).clone() for some in each)

    def _path(self, tokens: Tensor) -> Path:
        """Where the row of a phrase is cached, by the tower and the tokens of all its prompts."""
        return cache_folder() / CACHE / self.identity / f"{fingerprint(tokens.tolist(), digits=32)}.npy"


def _read(path: Path) -> Tensor | None:
    """A cached row; None where there is none, or no whole one."""
    try:
        row = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    sound = row.ndim == 1 and row.dtype == np.float32 and abs(float(np.linalg.norm(row)) - 1) < 1e-3
    return torch.from_numpy(row) if sound else None


class DualEncoder(nn.Module):
    """The network of such a classifier.

    Args:
        image: the image tower, from images [N, 3, H, W] to embeddings [N, size].
        text: the text tower, which is no part of the network.
        scale: what the cosine is multiplied with.
        bias: what is added then; with it the outputs are independent (SigLIP), None: exactly one is true (CLIP).
        labels: the default labels; None for the 80 everyday objects.
        preprocess: the preprocessing of an image, if it is known.
    """

    def __init__(
        self,
        image: nn.Module,
        text: TextTower,
        *,
        scale: float,
        bias: float | None = None,
        labels: Labels | None = None,
        preprocess: Preprocess | None = None,
    ) -> None:
        super().__init__()
        if scale <= 0:
            raise ModelError(f"The scale of the logits is {scale:g}: it must be above 0.")
        self.image = image
        self.text = text
        self.scale, self.bias = scale, bias
        self.preprocess = preprocess
        self.weight: Tensor | None
        self.register_buffer("weight", None, persistent=False)
        known = default_labels() if labels is None else labels
        self.vocabulary = OpenLabels([known.synonyms(unit) for unit in range(len(known))], text)

    def with_labels(self, labels: Labels) -> Self:
        """The same network with other default labels."""
        other = copy.copy(self)
        other.vocabulary = OpenLabels([labels.synonyms(unit) for unit in range(len(labels))], self.text)
        return other

    def forward(self, images: Tensor) -> Tensor:
        """Logits [N, labels and phrases]: by the rows that are there now, or by those of `fixed`."""
        embeddings = self.embed(images)
        rows = self.rows(embeddings) if self.weight is None else self.weight
        return self.logits(embeddings, rows)

    def embed(self, images: Tensor) -> Tensor:
        """The embeddings [N, size] of images, of length 1."""
        return functional.normalize(main_output(self.image(images)), dim=-1)

    def logits(self, embeddings: Tensor, rows: Tensor) -> Tensor:
        """Logits [N, rows] of embeddings."""
        found = functional.linear(embeddings * self.scale, rows)
        return found if self.bias is None else found + self.bias

    def rows(self, like: Tensor) -> Tensor:
        """The rows [labels and phrases, size], on the device and in the type of a tensor."""
        return self.vocabulary.rows().to(like.device, like.dtype)

    def fixed(self, like: Tensor) -> Self:
        """The same network with the rows that are there now, whatever is asked for in other threads."""
        other = copy.copy(self)
        other._buffers = {**self._buffers, "weight": self.rows(like)}  # noqa: SLF001 - its own, beside shared modules
        return other

    def extra_repr(self) -> str:
        """What its answers depend on beside the image tower."""
        return f"text={self.text.identity}, scale={self.scale:g}, bias={self.bias}, templates={fingerprint(TEMPLATES)}"


def default_labels() -> Labels:
    """The 80 everyday objects of COCO: what an image is compared with where nothing else is given.

    Example:
        >>> len(default_labels()), default_labels().name(0)
        (80, 'airplane')
    """
    return Labels(head_labels(DEFAULT_LABELS))


@dataclass(frozen=True, eq=False, repr=False)
class OpenClassifier(Classifier):
    """A classifier of any words: its network is a `DualEncoder`, its labels are that network's vocabulary.

    The probabilities of the default labels are those of the network. A phrase does not change them, nor what another
    phrase gets: its probability is that it fits the image better than all default labels do, the softmax over these and
    itself. Independent outputs have the sigmoid of their logit.
    """

    @property
    def network(self) -> DualEncoder:
        """The dual encoder."""
        if not isinstance(self.module, DualEncoder):
            raise ModelError(f"{self.name} has lost its vocabulary: load it again.")
        return self.module

    def fixed(self) -> nn.Module:
        """The network with the rows that are there now."""
        return self.network.fixed(self._own)

    def labels_for(self, outputs: int) -> Labels:  # noqa: ARG002 - an earlier forward pass may have had fewer
        """The vocabulary."""
        return self.network.vocabulary

    def independent(self, outputs: int) -> Tensor:
        """Mask [C] of the independent outputs: all but default labels of which exactly one is true."""
        return torch.arange(outputs) >= (0 if self.multilabel else len(self.network.vocabulary))

    def probabilities(self, logits: Tensor) -> Tensor:
        """Probabilities [N, C] of the module's logits."""
        if logits.dim() != 2:
            raise ModelError(f"{self.name} gave an output of shape {list(logits.shape)}: it must give logits [N, C].")
        if self.multilabel:
            return logits.sigmoid()
        defaults, phrases = logits.tensor_split([len(self.network.vocabulary)], dim=1)
        against = (phrases - defaults.logsumexp(dim=1, keepdim=True)).sigmoid()
        return torch.cat([defaults.softmax(dim=1), against], dim=1)

    def chances(self, embeddings: Tensor, concepts: Sequence[Concept]) -> Tensor:
        """The probability [concepts, N] of each concept in images with these embeddings [N, size]."""
        network = self.network
        defaults = len(network.vocabulary)
        rows = network.rows(embeddings)  # of all concepts, which were found before
        units = sorted({*range(defaults), *(unit for concept in concepts for unit in concept.units)})
        place = {unit: k for k, unit in enumerate(units)}
        found = self.probabilities(network.logits(embeddings, rows[units]))
        each = [[place[unit] for unit in concept.units] for concept in concepts]
        independent = self.independent(len(units))
        return torch.stack([_any(found[:, own], independent[own]) for own in each])


def _any(probabilities: Tensor, independent: Tensor) -> Tensor:
    """The probability [N] of any of some outputs [N, C], as `Classifier.chance` gives it for one image."""
    exclusive = probabilities[:, ~independent].sum(dim=1, keepdim=True)
    return torch.cat([probabilities[:, independent], exclusive], dim=1).amax(dim=1)

"""What is to be learnt, and by which network: all that a training reads before its first step."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from excite.errors import DataError, ModelError
from excite.models import Preprocess, find_card, load
from excite.models.classifier import network_identity
from excite.models.folder import FACTS, read_saved
from excite.tags.dictionary import Dictionary, dictionary_beside
from excite.tags.statistics import statistics_of
from excite.training.augmentation import Views, noise
from excite.training.output_layer import Output, with_new_output
from excite.training.tags.batches import groups_of
from excite.training.tags.dataset import FIRST, read_lessons
from excite.training.tags.model import Trainee, begin_at_frequencies
from excite.vocabulary.labels import fold

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

    from excite.models import Card, Classifier
    from excite.tags.corpus import Corpus
    from excite.tags.images import Pictures
    from excite.training.tags.dataset import Lessons
    from excite.training.tags.distributed import Together


# What decides about the course of a training.


@dataclass(frozen=True)
class Options:
    """How to train; by default the paper's way.

    Attributes:
        layers: "output", the last one only, or "all".
        first: how many of an image's tags are learnt.
        epochs: how often each image is seen, at most.
        batch: images a step, of all processes together.
        rate: the learning rate, divided by 10 whenever the loss of the images kept aside goes flat.
        momentum: how much of the last step is made again.
        held_out: the share of the images that is kept aside.
        checks: how often their loss is looked at in an epoch.
        views: how many random views of each image are looked at once; 0: a new one in each epoch.
        seed: another one gives other views, another order and other weights to begin with.

    Raises:
        ModelError: they do not go together.

    Example:
        >>> Options(views=4).epochs
        3
    """

    layers: str = "output"
    first: int = FIRST
    epochs: int = 3
    batch: int = 64
    rate: float = 0.01
    momentum: float = 0.9
    held_out: float = 0.1
    checks: int = 4
    views: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.layers not in {"output", "all"}:
            raise ModelError(f"there are no layers {self.layers!r} to train: choose output or all")
        if self.layers == "all" and self.views:
            raise ModelError("features are kept only while the layers below stay as they are: leave --views out")

    @property
    def everything(self) -> bool:
        """Whether all layers are trained."""
        return self.layers == "all"


# Which tags are learnt: those of a dictionary, or those seen often enough.


@dataclass(frozen=True)
class Choice:
    """A dictionary to learn.

    Attributes:
        dictionary: the tags.
        source: where they come from, for people to read.
        unspeakable: tags that were left out, since no user's word can mean them: blank, or nothing but dashes.
    """

    dictionary: Dictionary
    source: str
    unspeakable: tuple[str, ...] = ()


def chosen_dictionary(corpus: Corpus, path: Path | None = None, least: int | None = None) -> Choice:
    """The dictionary of a file, or the one that lies beside the corpus, or the tags seen at least so often in it.

    Raises:
        DataError: there is none of them, two were asked for, or no tag is left.

    Example:
        >>> chosen_dictionary(Corpus(Path("kept.parquet")), least=1000).dictionary.tags[:2]  # doctest: +SKIP
        ('nature', 'people')
    """
    if path is not None and least is not None:
        raise DataError("a dictionary was given and --min-count asks for another one: leave one of them out")
    beside = dictionary_beside(corpus.path)
    if least is not None:
        found, source = (
            statistics_of(corpus).at_least(least),
            f"the tags seen at least {least} times in {corpus.path.name}",
        )
    elif path is not None or beside.is_file():
        found, source = Dictionary.read(path or beside), (path or beside).name
    else:
        raise DataError(
            f"which tags shall be learnt? There is no {beside}: give --dictionary FILE.csv or --min-count N"
        )
    spoken = [bool(fold(tag)) for tag in found.tags]
    pairs = [pair for pair, good in zip(zip(found.tags, found.counts, strict=True), spoken, strict=True) if good]
    if not pairs:
        raise DataError(f"there is no tag to learn: {source} has none")
    speakable = Dictionary(tuple(tag for tag, _ in pairs), tuple(count for _, count in pairs))
    return Choice(speakable, source, tuple(tag for tag, good in zip(found.tags, spoken, strict=True) if not good))


# What is to be learnt, and by which network: all that a training reads before its first step.


@dataclass(frozen=True, eq=False)
class Subject:
    """The lessons and the pupil.

    Attributes:
        choice: the tags.
        lessons: the images to learn from,
        aside: and those kept aside.
        groups: which of the former lie together.
        base: the name of the network that the result is built on; not a folder.
        card: of the classifier to begin with,
        classifier: and that itself.
        network: the same with a new output layer,
        layer: which has this name.
    """

    choice: Choice
    lessons: Lessons
    aside: Lessons
    groups: NDArray[np.int64]
    base: str
    card: Card
    classifier: Classifier
    network: nn.Module
    layer: str

    @classmethod
    def read(
        cls,
        corpus: Corpus,
        which: tuple[Path | None, int | None],
        pictures: Pictures,
        model: tuple[str, str | None],
        options: Options,
    ) -> Self:
        """Read a corpus, and make a network for its tags.

        Args:
            corpus: the images and their tags.
            which: a dictionary, or how often a tag must be seen, see `chosen_dictionary`.
            pictures: where the images are.
            model: a classifier and a file of weights for it, as in `excite.load`.
            options: how to train.
        """
        choice = chosen_dictionary(corpus, *which)
        lessons, aside = read_lessons(corpus, choice.dictionary, options.first, options.held_out)
        name, weights = model
        card, classifier = find_card(name), load(name, weights=weights, fully_convolutional=False)
        if not isinstance(classifier.preprocess, Preprocess):
            raise ModelError(f"{card.name} prepares its images in an unknown way: it cannot be trained.")
        tags = len(choice.dictionary)
        network, layer = with_new_output(card, classifier.module, tags, options.seed)
        begin_at_frequencies(network.get_submodule(layer), lessons.counts(tags), len(lessons))
        base = read_saved(Path(name)).base if (Path(name) / FACTS).is_file() else card.name
        groups = groups_of(lessons, pictures)
        return cls(choice, lessons, aside, groups, base, card, classifier, network, layer)

    @property
    def preprocess(self) -> Preprocess:
        """How the network takes images."""
        assert isinstance(self.classifier.preprocess, Preprocess)  # noqa: S101 - `read` has seen to it
        return self.classifier.preprocess

    def key(self, options: Options) -> str:
        """Changes when a training would take another course."""
        content = hashlib.blake2b("\0".join(self.choice.dictionary.tags).encode(errors="surrogatepass"))
        content.update(self.groups.tobytes())
        facts = [network_identity(self.network), repr(self.preprocess), self.lessons.digest(), self.aside.digest()]
        content.update(json.dumps([*facts, asdict(options)]).encode())
        return content.hexdigest()[:32]

    def trainee(self, options: Options, processes: Together) -> Trainee:
        """The network, ready to learn; from now on it changes."""
        network = self.network.to(processes.device)
        seen = Views(self.preprocess, options.seed)(noise(), "noise", (0, 1)).to(processes.device)
        output = Output.of(network, self.layer, seen)
        return Trainee(
            network, self.layer, output, everything=options.everything, momentum=options.momentum, processes=processes
        )

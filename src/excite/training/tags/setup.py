"""The inputs of a training, read before its first step: options, dictionary, data sets and network."""

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
from excite.training.augmentation import Views, noise_image
from excite.training.output_layer import Output, with_new_output
from excite.training.tags.batches import image_groups
from excite.training.tags.dataset import FIRST, read_tag_dataset
from excite.training.tags.model import Model, set_frequency_biases
from excite.vocabulary.labels import fold

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

    from excite.models import Card, Classifier
    from excite.tags.corpus import Corpus
    from excite.tags.images import ImageSource
    from excite.training.tags.dataset import TagDataset
    from excite.training.tags.distributed import Distributed


@dataclass(frozen=True)
class TrainingOptions:
    """Hyperparameters; by default the paper's.

    Attributes:
        layers: "output", the last one only, or "all".
        first: the number of an image's tags that are learnt.
        epochs: at most.
        batch: images per step, of all processes together.
        rate: the learning rate, divided by 10 whenever the validation loss plateaus.
        momentum: the weight of the previous step.
        held_out: the share of validation images.
        checks: evaluations of the loss per epoch.
        views: random views of each image, computed once; 0: a new one in each epoch.
        seed: of the views, the order and the initial weights.

    Raises:
        ModelError: the options exclude each other.
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


@dataclass(frozen=True)
class DictionaryChoice:
    """A dictionary to learn.

    Attributes:
        dictionary: the tags.
        source: where they come from, for the model card.
        unspeakable: tags left out because no query can match them: blank, or nothing but dashes.
    """

    dictionary: Dictionary
    source: str
    unspeakable: tuple[str, ...] = ()


def chosen_dictionary(corpus: Corpus, path: Path | None = None, least: int | None = None) -> DictionaryChoice:
    """The dictionary in a file or beside the corpus, or the tags that it lists at least ``least`` times.

    Raises:
        DataError: there is none of them, two were asked for, or no tag is left.
    """
    if path is not None and least is not None:
        raise DataError("a dictionary was given and --min-count asks for another one: leave one of them out")
    beside = dictionary_beside(corpus.path)
    if least is not None:
        found = statistics_of(corpus).at_least(least)
        source = f"the tags seen at least {least} times in {corpus.path.name}"
    elif path is not None or beside.is_file():
        found, source = Dictionary.read(path or beside), (path or beside).name
    else:
        raise DataError(
            f"which tags shall be learnt? There is no {beside}: give --dictionary FILE.csv or --min-count N"
        )
    counted = [(tag, count) for tag, count in zip(found.tags, found.counts, strict=True) if fold(tag)]
    if not counted:
        raise DataError(f"there is no tag to learn: {source} has none")
    speakable = Dictionary(tuple(tag for tag, _ in counted), tuple(count for _, count in counted))
    return DictionaryChoice(speakable, source, tuple(tag for tag in found.tags if not fold(tag)))


@dataclass(frozen=True, eq=False)
class Setup:
    """The data sets and the network of a training.

    Attributes:
        choice: the tags.
        training: the training images,
        validation: and the held-out images.
        groups: the group (shard) of each training image.
        base: the name of the architecture; not a folder.
        card: of the base classifier.
        classifier: the base classifier.
        network: the same with a new output layer.
        layer: the name of that layer.
    """

    choice: DictionaryChoice
    training: TagDataset
    validation: TagDataset
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
        tags: tuple[Path | None, int | None],
        images: ImageSource,
        base: tuple[str, str | None],
        options: TrainingOptions,
    ) -> Self:
        """Read a corpus, and build a network for its tags.

        ``tags``: a dictionary or the least count of a tag, as in `chosen_dictionary`; ``base``: a classifier and a file
        of weights for it, as in `excite.load`.
        """
        choice = chosen_dictionary(corpus, *tags)
        training, validation = read_tag_dataset(corpus, choice.dictionary, options.first, options.held_out)
        name, weights = base
        card, classifier = find_card(name), load(name, weights=weights, fully_convolutional=False)
        if not isinstance(classifier.preprocess, Preprocess):
            raise ModelError(f"{card.name} prepares its images in an unknown way: it cannot be trained.")
        outputs = len(choice.dictionary)
        network, layer = with_new_output(card, classifier.module, outputs, options.seed)
        set_frequency_biases(network.get_submodule(layer), training.counts(outputs), len(training))
        architecture = read_saved(Path(name)).base if (Path(name) / FACTS).is_file() else card.name
        groups = image_groups(training, images)
        return cls(choice, training, validation, groups, architecture, card, classifier, network, layer)

    @property
    def preprocess(self) -> Preprocess:
        """The preprocessing of the network."""
        assert isinstance(self.classifier.preprocess, Preprocess)  # noqa: S101 - checked by `read`
        return self.classifier.preprocess

    def key(self, options: TrainingOptions) -> str:
        """Changes when the training would take another course."""
        content = hashlib.blake2b("\0".join(self.choice.dictionary.tags).encode(errors="surrogatepass"))
        content.update(self.groups.tobytes())
        facts = [network_identity(self.network), repr(self.preprocess)]
        facts += [self.training.digest(), self.validation.digest()]
        content.update(json.dumps([*facts, asdict(options)]).encode())
        return content.hexdigest()[:32]

    def model(self, options: TrainingOptions, processes: Distributed) -> Model:
        """The network, ready to be trained in place."""
        network = self.network.to(processes.device)
        seen = Views(self.preprocess, options.seed)(noise_image(), "noise", (0, 1)).to(processes.device)
        output = Output.of(network, self.layer, seen)
        everything = options.layers == "all"
        return Model(network, self.layer, output, everything=everything, momentum=options.momentum, processes=processes)

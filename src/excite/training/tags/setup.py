"""What is to be learnt, and by which network: all that a training reads before its first step."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from excite.errors import ModelError
from excite.models import Preprocess, find_card, load
from excite.models.folder import FACTS, read_saved
from excite.models.identity import network_identity
from excite.training.augmentation import Views, noise
from excite.training.output_layer import Output, with_new_output
from excite.training.tags.batches import groups_of
from excite.training.tags.choosing import chosen_dictionary
from excite.training.tags.dataset import read_lessons
from excite.training.tags.model import Trainee, begin_at_frequencies

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

    from excite.models import Card, Classifier
    from excite.tags.corpus import Corpus
    from excite.tags.images import Pictures
    from excite.training.tags.choosing import Choice
    from excite.training.tags.dataset import Lessons
    from excite.training.tags.distributed import Together
    from excite.training.tags.options import Options

__all__ = ["Subject"]


@dataclass(frozen=True, eq=False)
class Subject:
    """The lessons and the pupil.

    Attributes:
        choice: the tags.
        lessons: the pictures to learn from,
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
            corpus: the pictures and their tags.
            which: a dictionary, or how often a tag must be seen, see `chosen_dictionary`.
            pictures: where the pictures are.
            model: a classifier and a file of weights for it, as in `excite.load`.
            options: how to train.
        """
        choice = chosen_dictionary(corpus, *which)
        lessons, aside = read_lessons(corpus, choice.dictionary, options.first, options.held_out)
        name, weights = model
        card, classifier = find_card(name), load(name, weights=weights, fully_convolutional=False)
        if not isinstance(classifier.preprocess, Preprocess):
            raise ModelError(f"{card.name} prepares its pictures in an unknown way: it cannot be trained.")
        tags = len(choice.dictionary)
        network, layer = with_new_output(card, classifier.module, tags, options.seed)
        begin_at_frequencies(network.get_submodule(layer), lessons.counts(tags), len(lessons))
        base = read_saved(Path(name)).base if (Path(name) / FACTS).is_file() else card.name
        groups = groups_of(lessons, pictures)
        return cls(choice, lessons, aside, groups, base, card, classifier, network, layer)

    @property
    def preprocess(self) -> Preprocess:
        """How the network takes pictures."""
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

"""A known classifier learns other concepts: the paper's procedure, in which only the output layer is trained."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from excite.errors import DataError, ModelError
from excite.images import read_image
from excite.jobs import Executor, open_results
from excite.jobs.executor import one_thread
from excite.jobs.loop import no_progress, run
from excite.metrics.ranking import average_precision, mean_average_precision
from excite.models import Preprocess, find_card, load
from excite.models.classifier import identity
from excite.models.folder import FACTS, Saved, read_saved, save_classifier
from excite.training.augmentation import Views, noise
from excite.training.features import Extraction, FixedViews, FreshViews, Gathering, state_of
from excite.training.output_layer import Output, with_new_output
from excite.training.sgd import Descent, Fit, plateaued

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn

    from excite.jobs import Entry
    from excite.jobs.loop import Progress
    from excite.models import Classifier
    from excite.training.examples import Example, Examples


# How well a classifier tells what is in images that it was not trained on.


@dataclass(frozen=True, eq=False)
class Scoring:
    """The work done for each image: how probable the classifier finds each category, seeing the whole image."""

    classifier: Classifier
    question: str = field(init=False)

    def __post_init__(self) -> None:
        facts = identity(self.classifier)
        object.__setattr__(self, "question", json.dumps(facts))

    def key(self, task: Example) -> str:
        """Changes when the image or the classifier does."""
        facts = [self.question, task.name, state_of(task.path)]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]

    def __call__(self, task: Example) -> dict[str, Any]:
        """The probability of each output."""
        picture = self.classifier.preprocess(read_image(task.path))[None]
        with torch.no_grad():
            found = self.classifier.probabilities(self.classifier.module(picture))[0]
        return {"picture": task.name, "scores": found.tolist()}


def precisions(examples: Examples, entries: Iterable[Entry]) -> dict[str, float | None]:
    """The average precision of each category, from what `Scoring` found; None for one that is nowhere.

    An image in which nobody is sure of a category says nothing about it.
    """
    scores = {entry["picture"]: entry["scores"] for entry in entries}
    pictures = [picture for picture in examples.pictures if picture.name in scores]
    if not pictures:
        raise DataError("no image was scored: there is nothing to measure")
    answer = {}
    for place, category in enumerate(examples.categories):
        sure = [picture for picture in pictures if category not in picture.unsure]
        truth = [category in picture.present for picture in sure]
        answer[category] = average_precision([scores[picture.name][place] for picture in sure], truth)
    return answer


# A known classifier learns other concepts: the paper's procedure, in which only the output layer is trained.

VIEWS = 4
FEATURES, CHECKPOINT, HELD_OUT = "features", "training.safetensors", "held-out.jsonl"


@dataclass(eq=False)
class FineTuning:
    """The training of an output layer for the categories of some examples.

    Args:
        model: the classifier to begin with, as in `excite.load`: a name, a file or a folder.
        examples: what to learn from.
        out: the folder for the new classifier, and for all that a training needs to go on where it was stopped.
        weights: a file for the model.
        descent: how steps are made.
        views: how many random views of each image are looked at before the training,
        augment: or, instead of them, a new one in each epoch: the paper's way, which takes as long as it sounds.
        workers: who looks at images: how many processes of this machine, or a crew.
        progress: shows how far the work is.

    Attributes:
        failures: a line for each image that cannot be read; it is left out.

    Example:
        >>> examples = read_examples("VOCdevkit", "train")                         # doctest: +SKIP
        >>> FineTuning("efficientnet-lite0", examples, Path("voc")).train()        # doctest: +SKIP
        >>> excite.attend(excite.load("voc"), "photo.jpg", "dining table")         # doctest: +SKIP
    """

    model: str
    examples: Examples
    out: Path
    weights: str | None = None
    descent: Descent = field(default_factory=Descent)
    views: int = VIEWS
    augment: bool = False
    workers: int | Executor = 1
    progress: Progress = no_progress
    failures: list[str] = field(default_factory=list)

    def train(self) -> dict[str, Any]:
        """Train, save the classifier, and tell how it was trained and which files it is in."""
        card = find_card(self.model)
        base = load(self.model, weights=self.weights, fully_convolutional=False)
        if not isinstance(base.preprocess, Preprocess):
            raise ModelError(f"{card.name} prepares its images in an unknown way: it cannot be fine-tuned.")
        words = tuple(self.examples.labels.synonyms(unit) for unit in range(len(self.examples.labels)))
        network, layer = with_new_output(card, base.module, len(words), self.descent.seed)
        with one_thread():
            fit = self._fitted(network, layer, Views(base.preprocess, self.descent.seed))
        training = self._about(fit)
        facts = Saved(
            base=read_saved(Path(self.model)).base if (Path(self.model) / FACTS).is_file() else card.name,
            labels=words,
            multilabel=True,
            layers=card.layers,
            size=base.preprocess.shorter_side,
            fully_convolutional=card.fully_convolutional,
            training=training,
        )
        files = save_classifier(self.out, network, facts)
        return {"model": facts.base, **training, "files": [str(file) for file in files]}

    def measure(self, aside: Examples) -> dict[str, Any]:
        """The average precision of the classifier that was saved, on images it was not trained on."""
        executor = Executor.of(self.workers)
        store = open_results(self.out / HELD_OUT, ("picture", "scores"), parquet=executor.is_cluster)
        scored = run(Scoring(load(self.out)), aside.pictures, store, workers=executor, failures=self.failures)
        each = precisions(aside, self.progress(scored, len(aside.pictures), "held-out images"))
        return {"held_out": len(aside.pictures), "map": mean_average_precision(list(each.values())), "precision": each}

    def _fitted(self, network: nn.Module, layer: str, views: Views) -> Fit:
        fit = Fit(Output.of(network, layer, views(noise(), "noise", (0, 1))), self.descent)
        gather = Gathering(self.examples, self.workers, self.progress, self.failures)
        work = Extraction(network, layer, views, tuple(range(self.views)))
        checkpoint, key = self.out / CHECKPOINT, self._key(work)
        if self.augment:
            fit.resume(checkpoint, key)
        source = (FreshViews if self.augment else FixedViews)(work, gather, self.out / FEATURES)
        while not plateaued(fit.losses):
            fit.epoch(*source(len(fit.losses)))
            if self.augment:
                fit.save(checkpoint, key)
        return fit

    def _key(self, work: Extraction) -> str:
        """Changes when a training would take another course."""
        pictures = [
            [picture.name, sorted(picture.present), sorted(picture.unsure)] for picture in self.examples.pictures
        ]
        facts = [work.question, asdict(self.descent), self.examples.categories, pictures]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def _about(self, fit: Fit) -> dict[str, Any]:
        seen = Counter(category for picture in self.examples.pictures for category in picture.present)
        return {
            "pictures": len(self.examples.pictures) - len(self.failures),
            "categories": list(self.examples.categories),
            "never_seen": [category for category in self.examples.categories if not seen[category]],
            **asdict(self.descent),
            "views": "new" if self.augment else self.views,
            "epochs": len(fit.losses),
            "loss": fit.losses[-1],
        }

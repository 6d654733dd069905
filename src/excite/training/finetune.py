"""Fine-tuning: the paper's procedure for new categories, in which only the output layer is trained."""

import itertools
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from excite.errors import DataError
from excite.images import file_state, read_image
from excite.io.cache import fingerprint
from excite.jobs import Entry, Executor, ResultStore
from excite.jobs.executor import one_thread
from excite.jobs.loop import Progress, no_progress, run
from excite.metrics.ranking import average_precision, mean_average_precision
from excite.models import Classifier, load
from excite.models.classifier import identity
from excite.models.loading import find_device
from excite.training.examples import Example, Examples
from excite.training.features import FeatureExtractor, Views, extract_features
from excite.training.output_layer import NewClassifier, Output
from excite.training.sgd import OutputTrainer, SGDOptions, plateaued

VIEWS = 4
FEATURES, CHECKPOINT, HELD_OUT = "features", "training.safetensors", "held-out.jsonl"
EpochInput = tuple["Tensor", "Tensor", "Tensor"]
"""The features of all images of an epoch, and where categories are present and certain [images, categories]."""


@dataclass(eq=False)
class FineTuning:
    """The training of an output layer for the categories of some examples."""

    model: str  # the base classifier, as in `excite.load`: a name, a file or a folder
    examples: Examples  # the training images
    out: Path  # the folder for the new classifier, stored features and checkpoints
    weights: str | None = None  # a weights file for the model
    sgd: SGDOptions = field(default_factory=SGDOptions)  # hyperparameters
    views: int = VIEWS  # the number of random views of each image, computed once before the training
    augment: bool = False  # or new random views in each epoch: the paper's procedure, far slower
    workers: int | Executor = 1  # the number of processes, or an executor
    progress: Progress = no_progress  # reports the progress
    failures: list[str] = field(default_factory=list)  # a line for each image that cannot be read and is left out
    device: str = "cpu"  # where the network computes, as in `excite.load`

    def __post_init__(self) -> None:
        find_device(self.device)  # an error before anything is loaded

    def train(self) -> dict[str, Any]:
        """Train and save the classifier; returns the training facts and the files."""
        words = [self.examples.labels.synonyms(unit) for unit in range(len(self.examples.labels))]
        new = NewClassifier.of(self.model, self.weights, len(words), self.sgd.seed)
        with one_thread():
            trainer = self._trained(new)
        training = self._facts(trainer)
        files = new.save(self.out, words, training)
        return {"model": new.architecture, **training, "files": [str(file) for file in files]}

    def measure(self, held_out: Examples) -> dict[str, Any]:
        """The average precision of the saved classifier on held-out images."""
        executor = Executor.of(self.workers)
        store = ResultStore(self.out / HELD_OUT, ("picture", "scores"), parquet=executor.is_cluster)
        pictures = held_out.pictures
        scored = run(
            CategoryScorer(load(self.out, device=self.device)),
            pictures,
            store,
            workers=executor,
            failures=self.failures,
        )
        each = precisions(held_out, self.progress(scored, len(pictures), "held-out images"))
        return {"held_out": len(pictures), "map": mean_average_precision(list(each.values())), "precision": each}

    def _trained(self, new: NewClassifier) -> OutputTrainer:
        views, device = Views(new.preprocess, self.sgd.seed), find_device(self.device)
        output = Output.of(new.network.to(device), new.layer, views.of_noise().to(device))
        trainer = OutputTrainer(output, self.sgd)
        extractor = FeatureExtractor(new.network, new.layer, views, tuple(range(self.views)))
        checkpoint, key = self.out / CHECKPOINT, self._key(extractor)
        if self.augment:
            trainer.resume(checkpoint, key)
        epochs = (self._fresh_views if self.augment else self._fixed_views)(extractor, len(trainer.losses))
        while not plateaued(trainer.losses):
            trainer.epoch(*next(epochs))
            if self.augment:
                trainer.save(checkpoint, key)
        return trainer

    def _fixed_views(self, extractor: FeatureExtractor, first: int) -> Iterator[EpochInput]:
        """All views are computed at first, and each epoch takes the next one of each image."""
        features, present, sure = self._extract(extractor, self.out / FEATURES, "images")
        images, views = torch.arange(len(features)), features.shape[1]
        for epoch in itertools.count(first):
            yield features[images, (images + epoch) % views], present, sure

    def _fresh_views(self, extractor: FeatureExtractor, first: int) -> Iterator[EpochInput]:
        """Each epoch takes a new view of each image, whose number is the epoch's; older ones are removed."""
        failed: int | None = None  # before; one more would make it another training
        for epoch in itertools.count(first):
            here = self.out / FEATURES / f"epoch-{epoch}"
            for folder in here.parent.glob("epoch-*"):
                if folder != here:
                    shutil.rmtree(folder)
            work = replace(extractor, numbers=(epoch,))
            features, present, sure = self._extract(work, here, f"images of epoch {epoch + 1}")
            if failed is not None and len(self.failures) > failed:
                lost = self.failures[-1]
                raise DataError(f"an image got lost while it is learnt from: {lost}; put it back, and start again")
            failed = len(self.failures)
            yield features[:, 0], present, sure

    def _extract(self, work: FeatureExtractor, folder: Path, what: str) -> EpochInput:
        failed: list[str] = []
        names, features = extract_features(
            work, self.examples.pictures, folder, what, failed, self.workers, self.progress
        )
        self.failures.extend(failure for failure in failed if failure not in self.failures)
        readable, categories = set(names), self.examples.categories
        pictures = [picture for picture in self.examples.pictures if picture.name in readable]
        present = torch.tensor([[float(one in picture.present) for one in categories] for picture in pictures])
        unsure = torch.tensor([[float(one in picture.unsure) for one in categories] for picture in pictures])
        return features, present, 1 - unsure

    def _key(self, extractor: FeatureExtractor) -> str:
        """Changes when the training would take another course."""
        pictures = [
            [picture.name, sorted(picture.present), sorted(picture.unsure)] for picture in self.examples.pictures
        ]
        return fingerprint([extractor.identity, asdict(self.sgd), self.examples.categories, pictures], digits=64)

    def _facts(self, trainer: OutputTrainer) -> dict[str, Any]:
        seen = Counter(category for picture in self.examples.pictures for category in picture.present)
        return {
            "pictures": len(self.examples.pictures) - len(self.failures),
            "categories": list(self.examples.categories),
            "never_seen": [category for category in self.examples.categories if not seen[category]],
            **asdict(self.sgd),
            "views": "new" if self.augment else self.views,
            "epochs": len(trainer.losses),
            "loss": trainer.losses[-1],
        }


@dataclass(frozen=True, eq=False)
class CategoryScorer:
    """The probability of each category in a whole image, as work for `excite.jobs.loop.run`."""

    classifier: Classifier

    @cached_property
    def identity(self) -> str:
        """Of the classifier."""
        return json.dumps(identity(self.classifier))

    def key(self, task: Example) -> str:
        """Changes when the image or the classifier does."""
        return fingerprint((self.identity, task.name, file_state(task.path)), digits=32)

    def __call__(self, task: Example) -> dict[str, Any]:
        """The probability of each output."""
        logits = self.classifier.logits(self.classifier.prepared(read_image(task.path))[None])
        return {"picture": task.name, "scores": self.classifier.probabilities(logits)[0].cpu().tolist()}


def precisions(examples: Examples, entries: Iterable[Entry]) -> dict[str, float | None]:
    """The average precision of each category from the entries of `CategoryScorer`; None for one that is absent."""
    scores = {entry["picture"]: entry["scores"] for entry in entries}
    pictures = [picture for picture in examples.pictures if picture.name in scores]
    if not pictures:
        raise DataError("no image was scored: there is nothing to measure")
    answer = {}
    for unit, category in enumerate(examples.categories):
        sure = [picture for picture in pictures if category not in picture.unsure]
        truth = [category in picture.present for picture in sure]
        answer[category] = average_precision([scores[picture.name][unit] for picture in sure], truth)
    return answer

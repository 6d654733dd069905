"""Training of a tag classifier: the paper's procedure for its 18,157 tags, or a quicker one with stored features."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from excite.errors import DataError
from excite.io.files import save_text
from excite.io.text import for_markdown, markdown_code, templates_of
from excite.jobs.loop import Progress, no_progress
from excite.models.classifier import network_identity
from excite.models.loading import FACTS, WEIGHTS, read_saved
from excite.tags.corpus import Corpus
from excite.tags.dictionary import Dictionary, dictionary_beside
from excite.tags.images import ImageSource
from excite.tags.statistics import statistics_of
from excite.training.features import FeatureExtractor, Views, WholeImage, extract_features
from excite.training.output_layer import NewClassifier, Output
from excite.training.sgd import SGDOptions
from excite.training.tags.dataset import ImageLoader, TagDataset, fixed_views, fresh_views, read_tag_dataset
from excite.training.tags.loop import CHECKPOINT, CURVES, TrainingLoop, TrainingOptions, tensorboard_writer
from excite.training.tags.model import Distributed, Model, set_frequency_biases
from excite.training.tags.validation import Validation, measure
from excite.vocabulary.labels import fold

BOARD, DICTIONARY, MEASURES, README = "tensorboard", "dictionary.csv", "measures.csv", "README.md"
TRAINING_FEATURES, VALIDATION_FEATURES = "features/views", "features/held-out"
Failures = list[tuple[int, str]]


def chosen_dictionary(
    corpus: Corpus, path: Path | None = None, least: int | None = None
) -> tuple[Dictionary, str, int]:
    """The dictionary in a file or beside the corpus, or the tags that it lists at least ``least`` times.

    Also where it comes from, and how many tags are left out because no query can match them: blank, or only dashes.
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
    tags, counts = zip(*counted, strict=True)
    return Dictionary(tags, counts), source, len(found) - len(counted)


@dataclass(eq=False)
class TagTraining:
    """The training of a tag classifier."""

    corpus: Corpus  # the images and their tags
    images: ImageSource  # the image source
    out: Path  # the folder for the classifier, features and checkpoints; shared by all processes
    options: TrainingOptions = field(default_factory=TrainingOptions)  # hyperparameters
    model: str = "efficientnet-lite0"  # the base classifier, as in `excite.load`
    weights: str | None = None  # a file for it
    dictionary: Path | None = None  # the tags to learn; by default the file beside the corpus
    min_count: int | None = None  # or the tags listed at least so often
    workers: int = 1  # the number of processes that decode images
    save_every: float = 300  # seconds between two checkpoints
    tensorboard: bool = False  # also write the curves for TensorBoard
    processes: Distributed = field(default_factory=Distributed)  # the process group
    progress: Progress = no_progress  # reports the progress
    note: Callable[[str], None] = lambda _line: None  # receives notes for the user, a line each
    command: str = ""  # the command line, for the model card

    def train(self) -> dict[str, Any]:
        """Train, measure and save the classifier, or read the facts of a training that is finished already."""
        self._read()
        key, first = self._key(), self.processes.first
        done = dict(read_saved(self.out).training) if (self.out / FACTS).is_file() else {}
        if done.get("key") == key:
            if first:  # a kill may have left it behind
                (self.out / CHECKPOINT).unlink(missing_ok=True)
            return {**done, "already": True, "lines": [], "files": files_in(self.out)}
        loop = self._loop(key)
        with_board = self.tensorboard and first
        loop.run(tensorboard_writer(self.out / BOARD, loop.state.step) if with_board else lambda _point: None)
        dictionary = self._tags
        measures = measure(loop.validation, loop.model, dictionary, self.out / MEASURES if first else None)
        loop.share_failures()
        facts = {**self._facts(loop), **measures, "key": key}
        if first:  # the classifier's facts, which mark the end, come last
            dictionary.save(self.out / DICTIONARY)
            save_text(model_card(self._new.architecture, facts, self.command), self.out / README)
            self._new.save(self.out, [(tag,) for tag in dictionary.tags], facts)
            (self.out / CHECKPOINT).unlink(missing_ok=True)
        self.processes.wait()
        return {**facts, "already": False, "lines": loop.state.lines, "files": files_in(self.out)}

    def _read(self) -> None:
        """Read the corpus, and build a network for its tags."""
        options = self.options
        dictionary, self._source, left_out = chosen_dictionary(self.corpus, self.dictionary, self.min_count)
        if left_out:
            self.note(f"{left_out} tags of the dictionary are left out: blank, or nothing but dashes")
        self._tags = dictionary
        self._training, self._held_out = read_tag_dataset(self.corpus, dictionary, options.first, options.held_out)
        self._new = new = NewClassifier.of(self.model, self.weights, len(dictionary), options.seed)
        counts = self._training.counts(len(dictionary))
        set_frequency_biases(new.network.get_submodule(new.layer), counts, len(self._training))
        self._groups = self._training.groups(self.images)

    def _key(self) -> str:
        """Changes when the training would take another course."""
        content = hashlib.blake2b("\0".join(self._tags.tags).encode(errors="surrogatepass"))
        content.update(self._groups.tobytes())
        facts = [network_identity(self._new.network), repr(self._new.preprocess)]
        facts += [self._training.digest(), self._held_out.digest()]
        content.update(json.dumps([*facts, asdict(self.options)]).encode())
        return content.hexdigest()[:32]

    def _loop(self, key: str) -> TrainingLoop:
        new, options, failures = self._new, self.options, Failures()
        views, whole = Views(new.preprocess, options.seed), WholeImage(new.preprocess)
        device = self.processes.device
        output = Output.of(new.network.to(device), new.layer, views.of_noise().to(device))
        sgd = SGDOptions(rate=options.rate, momentum=options.momentum)
        model = Model(new.network, new.layer, output, sgd, self.processes, options.layers)
        source, stored = partial(fresh_views, self._training, self._loader(views), model.features), None
        if options.views:
            seen = self._extract(views, options.views, self._training, TRAINING_FEATURES, "images")
            failures += seen[2]
            source = partial(fixed_views, *seen[:2], len(self._training))
        if options.views and len(self._held_out):
            features, rows, failed = self._extract(whole, 1, self._held_out, VALIDATION_FEATURES, "held-out images")
            failures += [(~row, reason) for row, reason in failed]
            stored = features[:, 0], rows
        validation = Validation(self._held_out, model, self._loader(whole), stored)
        data = self._training, self._groups, source, validation
        loop = TrainingLoop(model, options, *data, self.out, key, self.save_every, self.progress, failures)
        if loop.resume():
            self.note(f"going on from step {loop.state.step} of {loop.steps}")
        elif (self.out / CHECKPOINT).is_file():
            self.note(f"{self.out / CHECKPOINT} is of a training with other data or options: beginning anew")
        return loop

    def _loader(self, views: Views | WholeImage) -> ImageLoader:
        return ImageLoader(self.images, views, self.workers)

    def _extract(
        self, views: Views | WholeImage, count: int, dataset: TagDataset, folder: str, what: str
    ) -> tuple[Tensor, NDArray[np.int64], Failures]:
        """The features of all readable images, their rows, and the unreadable rows with the reasons."""
        # the base classifier's: the layers below the output are the same, and it is smaller to send to workers
        work = FeatureExtractor(self._new.base, self._new.layer, views, tuple(range(count)), self.images)
        names: list[str] = dataset.names.to_pylist()
        reasons: list[str] = []
        if not self.processes.first:  # the first process computes, the others read the stored features
            self.processes.wait()
        readable, features = extract_features(
            work, names, self.out / folder, what, reasons, max(1, self.workers), self.progress
        )
        if self.processes.first:
            self.processes.wait()
        known = set(readable)
        rows = np.array([row for row, name in enumerate(names) if name in known], np.int64)
        failed = list(zip((row for row, name in enumerate(names) if name not in known), reasons, strict=True))
        return features, rows, failed

    def _facts(self, loop: TrainingLoop) -> dict[str, Any]:
        last, tags = loop.state.checks[-1], len(self._tags)
        return {
            "corpus": self.corpus.path.name,
            "dictionary": self._source,
            "tags": tags,
            "tags_never_seen": int((self._training.counts(tags) == 0).sum()),
            "pictures": len(self._training),
            "pictures_held_out": len(self._held_out),
            "left_out": self._training.left_out,
            "unreadable": len(loop.state.unreadable),
            **asdict(self.options),
            "steps": loop.state.step,
            "epochs_seen": last.epoch,
            "rate_at_the_end": last.rate,
            "loss": last.training_loss,
            "validation_loss": last.validation_loss,
        }


def files_in(folder: Path) -> list[str]:
    """The result files."""
    names = (README, DICTIONARY, CURVES, MEASURES, WEIGHTS, FACTS)
    return [str(folder / name) for name in names if (folder / name).is_file()]


def model_card(base: str, facts: Mapping[str, Any], command: str) -> str:
    """The text of ``README.md`` from the name of the network, the training facts and the command line, or nothing."""
    environment = templates_of("excite.training.tags")
    environment.filters |= {"md": for_markdown, "code": markdown_code}
    options = [option.name for option in fields(TrainingOptions)]
    measured = facts.get("map") is not None
    template = environment.get_template("model_card.md")
    return template.render(base=base, facts=facts, command=command, options=options, measured=measured)

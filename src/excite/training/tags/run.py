"""Training of a tag classifier: the paper's procedure for its 18,157 tags, or a quicker one with stored features."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.io.files import save_text
from excite.io.text import for_markdown, markdown_code, markdown_list
from excite.jobs.loop import no_progress
from excite.models.folder import FACTS, WEIGHTS, Saved, read_saved, save_classifier
from excite.training.augmentation import Views, WholeImage
from excite.training.features import FeatureExtractor, extract_features
from excite.training.tags.batches import CorpusFeatureExtractor, FixedViews, FreshViews, ImageLoader
from excite.training.tags.distributed import Distributed
from excite.training.tags.loop import Checkpointer, Schedule, TrainingLoop, tensorboard_writer
from excite.training.tags.setup import Setup, TrainingOptions
from excite.training.tags.validation import Validation, measure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from excite.jobs.loop import Progress
    from excite.tags.corpus import Corpus
    from excite.tags.images import ImageSource
    from excite.training.tags.dataset import TagDataset
    from excite.training.tags.model import Model

CHECKPOINT, CURVES, BOARD = "training.safetensors", "curves.csv", "tensorboard"
DICTIONARY, MEASURES, README = "dictionary.csv", "measures.csv", "README.md"
TRAINING_FEATURES, VALIDATION_FEATURES = "features/views", "features/held-out"


@dataclass(eq=False)
class TagTraining:
    """The training of a tag classifier.

    Args:
        corpus: the images and their tags.
        images: the image source.
        out: the folder for the classifier, features and checkpoints; shared by all processes.
        options: hyperparameters.
        model: the base classifier, as in `excite.load`.
        weights: a file for it.
        dictionary: the tags to learn; by default the file beside the corpus,
        min_count: or the tags listed at least so often.
        workers: the number of processes that decode images.
        save_every: seconds between two checkpoints.
        tensorboard: also write the curves for TensorBoard.
        processes: the process group.
        progress: reports the progress.
        note: receives notes for the user, a line each.
        command: the command line, for the model card.

    Example:
        >>> corpus, photos = Corpus(Path("kept.parquet")), open_images("photos")    # doctest: +SKIP
        >>> TagTraining(corpus, photos, Path("mine")).train()["map"]                # doctest: +SKIP
        0.21
    """

    corpus: Corpus
    images: ImageSource
    out: Path
    options: TrainingOptions = field(default_factory=TrainingOptions)
    model: str = "efficientnet-lite0"
    weights: str | None = None
    dictionary: Path | None = None
    min_count: int | None = None
    workers: int = 1
    save_every: float = 300
    tensorboard: bool = False
    processes: Distributed = field(default_factory=Distributed)
    progress: Progress = no_progress
    note: Callable[[str], None] = lambda _line: None
    command: str = ""

    def train(self) -> dict[str, Any]:
        """Train, measure and save the classifier, or read the facts of a training that is finished already."""
        tags, base = (self.dictionary, self.min_count), (self.model, self.weights)
        setup = Setup.read(self.corpus, tags, self.images, base, self.options)
        if setup.choice.unspeakable:
            left = len(setup.choice.unspeakable)
            self.note(f"{left} tags of the dictionary are left out: blank, or nothing but dashes")
        key = setup.key(self.options)
        done = dict(read_saved(self.out).training) if (self.out / FACTS).is_file() else {}
        if done.get("key") == key:
            if self.processes.first:  # a kill may have left it behind
                (self.out / CHECKPOINT).unlink(missing_ok=True)
            return {**done, "already": True, "lines": [], "files": files_in(self.out)}
        model = setup.model(self.options, self.processes)
        loop = self._loop(setup, model, key)
        if self.tensorboard and self.processes.first:
            with tensorboard_writer(self.out / BOARD, loop.state.step) as add:
                loop.run(add)
        else:
            loop.run()
        path = self.out / MEASURES if self.processes.first else None
        measures = measure(loop.validation, model, setup.choice.dictionary, path)
        loop.share_failures()
        facts = {**self._facts(setup, loop), **measures, "key": key}
        if self.processes.first:
            save_result(self.out, setup, facts, self.command)
        self.processes.wait()
        lines = loop.state.failures.lines
        return {**facts, "already": False, "lines": lines, "files": files_in(self.out)}

    def _loop(self, setup: Setup, model: Model, key: str) -> TrainingLoop:
        options, failures = self.options, list[tuple[int, str]]()
        loop = TrainingLoop(
            model=model,
            schedule=Schedule(len(setup.training), options.batch, options.epochs, options.rate, options.checks),
            dataset=setup.training,
            groups=setup.groups,
            source=self._source(setup, model, failures),
            validation=self._validation(setup, model, failures),
            checkpointer=Checkpointer(self.out / CHECKPOINT, self.out / CURVES, key, self.save_every),
            seed=options.seed,
            progress=self.progress,
        )
        loop.fail(failures)
        if loop.resume():
            self.note(f"going on from step {loop.state.step} of {loop.schedule.steps}")
        elif loop.checkpointer.path.is_file():
            self.note(f"{loop.checkpointer.path} is of a training with other data or options: beginning anew")
        return loop

    def _source(self, setup: Setup, model: Model, failures: list[tuple[int, str]]) -> FreshViews | FixedViews:
        views, dataset = Views(setup.preprocess, self.options.seed), setup.training
        if not self.options.views:
            return FreshViews(dataset, ImageLoader(self.images, views, self.workers), model)
        extractor = FeatureExtractor(setup.classifier.module, setup.layer, views, tuple(range(self.options.views)))
        features, rows, failed = self._extract(extractor, dataset, TRAINING_FEATURES, "images")
        failures += failed
        return FixedViews(features, rows, len(dataset))

    def _validation(self, setup: Setup, model: Model, failures: list[tuple[int, str]]) -> Validation:
        whole, dataset, stored = WholeImage(setup.preprocess), setup.validation, None
        if self.options.views and len(dataset):
            extractor = FeatureExtractor(setup.classifier.module, setup.layer, whole, (0,))
            features, rows, failed = self._extract(extractor, dataset, VALIDATION_FEATURES, "held-out images")
            failures += [(~row, reason) for row, reason in failed]
            stored = features[:, 0], rows
        return Validation(dataset, model, ImageLoader(self.images, whole, self.workers), stored)

    def _extract(
        self, extractor: FeatureExtractor, dataset: TagDataset, folder: str, what: str
    ) -> tuple[Tensor, NDArray[np.int64], list[tuple[int, str]]]:
        """The features of all readable images, their rows, and the unreadable rows with the reasons.

        The base classifier is used: the layers below the output are the same, and it is smaller to send to workers. The
        first process computes, the others read the stored features.
        """
        work, reasons = CorpusFeatureExtractor(extractor, self.images), list[str]()
        names: list[str] = dataset.names.to_pylist()
        if not self.processes.first:
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

    def _facts(self, setup: Setup, loop: TrainingLoop) -> dict[str, Any]:
        last, tags = loop.state.points[-1], len(setup.choice.dictionary)
        return {
            "corpus": self.corpus.path.name,
            "dictionary": setup.choice.source,
            "tags": tags,
            "tags_never_seen": int((setup.training.counts(tags) == 0).sum()),
            "pictures": len(setup.training),
            "pictures_held_out": len(setup.validation),
            "left_out": setup.training.left_out,
            "unreadable": len(loop.state.failures),
            **asdict(self.options),
            "steps": loop.state.step,
            "epochs_seen": last.epoch,
            "rate_at_the_end": last.rate,
            "loss": last.training_loss,
            "validation_loss": last.validation_loss,
        }


def save_result(folder: Path, setup: Setup, facts: Mapping[str, Any], command: str) -> None:
    """Write the dictionary, the model card and the classifier; its facts, which mark the end, come last."""
    saved = Saved(
        base=setup.base,
        labels=tuple((tag,) for tag in setup.choice.dictionary.tags),
        multilabel=True,
        layers=setup.card.layers,
        size=setup.preprocess.shorter_side,
        fully_convolutional=setup.card.fully_convolutional,
        training=facts,
    )
    setup.choice.dictionary.save(folder / DICTIONARY)
    save_text(model_card(saved.base, len(saved.labels), facts, command), folder / README)
    save_classifier(folder, setup.network.cpu(), saved)
    (folder / CHECKPOINT).unlink(missing_ok=True)


def files_in(folder: Path) -> list[str]:
    """The result files."""
    names = (README, DICTIONARY, CURVES, MEASURES, WEIGHTS, FACTS)
    return [str(folder / name) for name in names if (folder / name).is_file()]


OPTIONS = ("layers", "first", "epochs", "batch", "rate", "momentum", "held_out", "checks", "views", "seed")
USE = (
    "The network is {base}. Every command of excite takes this folder as `--model`: "
    "`excite attend PHOTO TAG --model FOLDER`. Several tags may be true of an image at once."
)
MEASURED = (
    "On {measured:,} held-out images, over the {tags_measured:,} tags that occur in them. "
    "Predicting by frequency gives every image the same score for a tag."
)
FILES = (
    "`classifier.json` and `weights.safetensors`: the classifier",
    "`dictionary.csv`: its tags in the order of its outputs, and how often each was seen",
    "`curves.csv`: the losses while it was trained",
)


def model_card(base: str, tags: int, facts: Mapping[str, Any], command: str) -> str:
    """The text of ``README.md``.

    Args:
        base: the network.
        tags: the number of outputs.
        facts: the training facts, as in ``classifier.json``.
        command: the command line, or nothing.

    Example:
        >>> text = model_card("efficientnet-lite0", 2, {"corpus": "kept.parquet", "pictures": 10}, "")
        >>> text.splitlines()[0]
        '# A classifier of 2 tags'
    """
    data = [f"corpus: {facts['corpus']}", f"training images: {facts['pictures']:,}"]
    data += [f"dictionary: {facts['dictionary']}"] if "dictionary" in facts else []
    data += [f"rows left out, {reason}: {count:,}" for reason, count in facts.get("left_out", {}).items()]
    data += [f"images that could not be read: {facts['unreadable']:,}"] if facts.get("unreadable") else []
    how = [f"{name.replace('_', ' ')}: {facts[name]}" for name in OPTIONS if name in facts]
    if "steps" in facts:
        loss = facts["validation_loss"]
        held_out = "" if loss is None else f", on held-out images {loss:.4f}"
        steps = f"{facts['steps']:,} steps, {facts['epochs_seen']:g} epochs"
        how.append(f"{steps}; loss {facts['loss']:.4f} an image{held_out}")
    has_measures = facts.get("map") is not None
    files = [*FILES, *(["`measures.csv`: how well each tag is predicted"] if has_measures else [])]
    parts = [
        f"# A classifier of {tags:,} tags",
        USE.format(base=for_markdown(base)),
        "## What it was trained on",
        markdown_list(data),
        "## How",
        markdown_list(how),
        *([markdown_code(command)] if command else []),
        *(_measures(facts) if has_measures else []),
        "## Files",
        "\n".join(f"- {file}" for file in files),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _measures(facts: Mapping[str, Any]) -> list[str]:
    rows = [
        f"| {truth} | {facts[f'map{end}']:.4f} | {facts[f'map_by_frequency{end}']:.4f} | {facts[f'ratio{end}']:.1f} x |"
        for truth, end in (("all tags of the dictionary", ""), (f"the first {facts['first']} tags", "_first"))
    ]
    table = ["| truth | mean average precision | by frequency | ratio |", "|---|---|---|---|", *rows]
    extremes = (
        for_markdown(f"{name.title()}: " + ", ".join(f"{tag} {found:.2f}" for tag, found in facts[name].items()))
        for name in ("best", "worst")
    )
    return ["## How good it is", MEASURED.format(**facts), "\n".join(table), *extremes]

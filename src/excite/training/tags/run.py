"""A known classifier learns the tags of a corpus: the paper's procedure for its 18,157 tags, or a quicker one."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from excite.io.files import save_text
from excite.jobs.loop import no_progress
from excite.models import Preprocess
from excite.models.folder import FACTS, WEIGHTS, Saved, read_saved, save_classifier
from excite.training.augmentation import Views, Whole
from excite.training.features import Extraction
from excite.training.tags.batches import Decoder, FixedViews, FreshViews, Shelving
from excite.training.tags.distributed import Together
from excite.training.tags.loop import Board, Course, Keeper, Schedule
from excite.training.tags.setup import Options, Subject
from excite.training.tags.validation import Aside, measure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from excite.jobs.loop import Progress
    from excite.models import Classifier
    from excite.tags.corpus import Corpus
    from excite.tags.images import Pictures
    from excite.training.tags.dataset import Lessons
    from excite.training.tags.model import Trainee


# What a training reads: the source of its steps, and the images kept aside.

LEARNT, ASIDE = "features/views", "features/held-out"


@dataclass(eq=False)
class Preparing:
    """Prepares features before the first step, where they are looked at once.

    With several processes the first one computes them and the others read what it has written.

    Attributes:
        trainee: the network with its new output layer.
        base: the network with its own: the layers below are the same, and it is smaller to send to workers.
        pictures: where the images are.
        out: the folder in which features are kept.
        options: how to train.
        workers: how many processes do the work.
        progress: shows how far it is.
        failures: rows that cannot be read, and why; those of images kept aside are negative.
    """

    trainee: Trainee
    base: Classifier
    pictures: Pictures
    out: Path
    options: Options
    workers: int
    progress: Progress
    failures: list[tuple[int, str]] = field(default_factory=list)

    def source(self, lessons: Lessons) -> FreshViews | FixedViews:
        """Where the features of the steps come from."""
        views = Views(self._preprocess, self.options.seed)
        if not self.options.views:
            return FreshViews(lessons, Decoder(self.pictures, views, self.workers), self.trainee)
        numbers = tuple(range(self.options.views))
        features, rows, failures = self._shelved(views, numbers, lessons, LEARNT, "pictures")
        self.failures += failures
        return FixedViews(features, rows, len(lessons))

    def aside(self, lessons: Lessons) -> Aside:
        """The images kept aside, each seen as a whole."""
        whole = Whole(self._preprocess)
        kept = None
        if self.options.views and len(lessons):
            features, rows, failures = self._shelved(whole, (0,), lessons, ASIDE, "pictures kept aside")
            self.failures += [(~row, reason) for row, reason in failures]
            kept = features[:, 0], rows
        return Aside(lessons, self.trainee, Decoder(self.pictures, whole, self.workers), kept)

    @property
    def _preprocess(self) -> Preprocess:
        assert isinstance(self.base.preprocess, Preprocess)  # noqa: S101 - or nothing could be prepared
        return self.base.preprocess

    def _shelved(self, views: Views | Whole, numbers: tuple[int, ...], lessons: Lessons, folder: str, what: str) -> Any:
        processes = self.trainee.processes
        shelve = Shelving(self.pictures, max(1, self.workers), self.progress)
        work = Extraction(self.base.module, self.trainee.layer, views, numbers)
        if not processes.first:
            processes.wait()
        answer = shelve(work, lessons, self.out / folder, what)
        if processes.first:
            processes.wait()
        return answer


# The card of a tag classifier: what it is and how it came about, for people to read.

OPTIONS = ("layers", "first", "epochs", "batch", "rate", "momentum", "held_out", "checks", "views", "seed")

USE = (
    "The network is {base}. Every command of excite takes this folder as `--model`: "
    "`excite attend PHOTO TAG --model FOLDER`. Several tags may be true of an image at once."
)
MEASURED = (
    "On {measured:,} images kept aside, over the {tags_measured:,} tags that occur in them. "
    "Predicting by frequency gives every image the same score for a tag."
)


def card(base: str, tags: int, facts: Mapping[str, Any], command: str) -> str:
    """The text of ``README.md``, in Markdown.

    Args:
        base: the network.
        tags: how many it knows.
        facts: the training facts, as in ``classifier.json``.
        command: how it was trained, as typed; nothing where nobody typed it.

    Example:
        >>> text = card("efficientnet-lite0", 2, {"corpus": "kept.parquet", "pictures": 10}, "")
        >>> text.splitlines()[0]
        '# A classifier of 2 tags'
    """
    parts = [
        f"# A classifier of {tags:,} tags",
        USE.format(base=base),
        "## What it was trained on",
        _list(_data(facts)),
        "## How",
        _list([f"{name.replace('_', ' ')}: {facts[name]}" for name in OPTIONS if name in facts] + _course(facts)),
        *([f"```sh\n{command}\n```"] if command else []),
        *_measures(facts),
        "## Files",
        _list(
            [
                "`classifier.json` and `weights.safetensors`: the classifier",
                "`dictionary.csv`: its tags in the order of its outputs, and how often each was seen",
                "`curves.csv`: the losses while it was trained",
                *(["`measures.csv`: how well each tag is predicted"] if facts.get("map") is not None else []),
            ]
        ),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _data(facts: Mapping[str, Any]) -> list[str]:
    lines = [f"corpus: {facts['corpus']}", f"pictures learnt from: {facts['pictures']:,}"]
    if "dictionary" in facts:
        lines.append(f"dictionary: {facts['dictionary']}")
    lines += [f"rows left out, {reason}: {count:,}" for reason, count in facts.get("left_out", {}).items()]
    if facts.get("unreadable"):
        lines.append(f"pictures that could not be read: {facts['unreadable']:,}")
    return lines


def _course(facts: Mapping[str, Any]) -> list[str]:
    if "steps" not in facts:
        return []
    loss = facts["validation_loss"]
    aside = "" if loss is None else f", on images kept aside {loss:.4f}"
    return [f"{facts['steps']:,} steps, {facts['epochs_seen']:g} epochs; loss {facts['loss']:.4f} an image{aside}"]


def _measures(facts: Mapping[str, Any]) -> list[str]:
    if facts.get("map") is None:
        return []
    rows = [
        f"| {truth} | {facts[f'map{end}']:.4f} | {facts[f'map_by_frequency{end}']:.4f} | {facts[f'ratio{end}']:.1f} x |"
        for truth, end in (("all tags of the dictionary", ""), (f"the first {facts['first']} tags", "_first"))
    ]
    table = ["| truth | mean average precision | by frequency | ratio |", "|---|---|---|---|", *rows]
    return [
        "## How good it is",
        MEASURED.format(**facts),
        "\n".join(table),
        "Best: " + _tags(facts["best"]),
        "Worst: " + _tags(facts["worst"]),
    ]


def _tags(some: Mapping[str, float]) -> str:
    return ", ".join(f"{tag} {precision:.2f}" for tag, precision in some.items())


def _list(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


# The folder of a tag classifier: what a training leaves behind, and how one sees that it was finished.

CHECKPOINT, CURVES, BOARD = "training.safetensors", "curves.csv", "tensorboard"
DICTIONARY, MEASURES, README = "dictionary.csv", "measures.csv", "README.md"


def save_result(folder: Path, subject: Subject, facts: Mapping[str, Any], command: str) -> None:
    """Write the classifier, its dictionary and its card; what says that the training is finished comes last."""
    saved = Saved(
        base=subject.base,
        labels=tuple((tag,) for tag in subject.choice.dictionary.tags),
        multilabel=True,
        layers=subject.card.layers,
        size=subject.preprocess.shorter_side,
        fully_convolutional=subject.card.fully_convolutional,
        training=facts,
    )
    subject.choice.dictionary.save(folder / DICTIONARY)
    save_text(card(saved.base, len(saved.labels), facts, command), folder / README)
    save_classifier(folder, subject.network.cpu(), saved)
    (folder / CHECKPOINT).unlink(missing_ok=True)


def finished(folder: Path, key: str) -> dict[str, Any] | None:
    """The facts of this same training, if it was finished before."""
    if not (folder / FACTS).is_file():
        return None
    facts = dict(read_saved(folder).training)
    return facts if facts.get("key") == key else None


def files_in(folder: Path) -> list[str]:
    """What a user may want to look at."""
    names = (README, DICTIONARY, CURVES, MEASURES, WEIGHTS, FACTS)
    return [str(folder / name) for name in names if (folder / name).is_file()]


# A known classifier learns the tags of a corpus: the paper's procedure for its 18,157 tags, or a quicker one.


@dataclass(eq=False)
class TagTraining:
    """The training of a tag classifier.

    Args:
        corpus: the images and their tags.
        pictures: where its images are.
        out: the folder for the classifier, and for all that a training needs to go on where it was stopped; one that
            all processes see.
        options: how to train.
        model: the classifier to begin with, as in `excite.load`.
        weights: a file for it.
        dictionary: the tags to learn; by default the file beside the corpus,
        min_count: or those seen at least so often.
        workers: how many processes decode images.
        save_every: seconds between two checkpoints at most.
        tensorboard: write the curves for TensorBoard too.
        processes: who trains together.
        progress: shows how far the work is.
        note: is told what a user should know, a line each.
        command: how the training was called, for its card.

    Example:
        >>> corpus, photos = Corpus(Path("kept.parquet")), open_pictures("photos")  # doctest: +SKIP
        >>> TagTraining(corpus, photos, Path("mine")).train()["map"]                # doctest: +SKIP
        0.21
    """

    corpus: Corpus
    pictures: Pictures
    out: Path
    options: Options = field(default_factory=Options)
    model: str = "efficientnet-lite0"
    weights: str | None = None
    dictionary: Path | None = None
    min_count: int | None = None
    workers: int = 1
    save_every: float = 300
    tensorboard: bool = False
    processes: Together = field(default_factory=Together)
    progress: Progress = no_progress
    note: Callable[[str], None] = lambda _line: None
    command: str = ""

    def train(self) -> dict[str, Any]:
        """Train, measure, save the classifier, and tell how it went; what is done already is not done again."""
        which, model = (self.dictionary, self.min_count), (self.model, self.weights)
        subject = Subject.read(self.corpus, which, self.pictures, model, self.options)
        if subject.choice.unspeakable:
            left = len(subject.choice.unspeakable)
            self.note(f"{left} tags of the dictionary are left out: blank, or nothing but dashes")
        key = subject.key(self.options)
        done = finished(self.out, key)
        if done is not None:
            if self.processes.first:  # it was killed when all was saved and only this was left to do
                (self.out / CHECKPOINT).unlink(missing_ok=True)
            return {**done, "already": True, "lines": [], "files": files_in(self.out)}
        trainee = subject.trainee(self.options, self.processes)
        course = self._course(subject, trainee, key)
        self._run(course)
        path = self.out / MEASURES if self.processes.first else None
        measures = measure(course.aside, trainee, subject.choice.dictionary, path)
        course.share_failures()
        facts = {**self._about(subject, course), **measures, "key": key}
        if self.processes.first:
            save_result(self.out, subject, facts, self.command)
        self.processes.wait()
        lines = course.standing.failures.lines
        return {**facts, "already": False, "lines": lines, "files": files_in(self.out)}

    def _course(self, subject: Subject, trainee: Trainee, key: str) -> Course:
        options, lessons = self.options, subject.lessons
        preparing = Preparing(
            trainee, subject.classifier, self.pictures, self.out, options, self.workers, self.progress
        )
        course = Course(
            trainee=trainee,
            schedule=Schedule(len(lessons), options.batch, options.epochs, options.rate, options.checks),
            lessons=lessons,
            groups=subject.groups,
            source=preparing.source(lessons),
            aside=preparing.aside(subject.aside),
            keeper=Keeper(self.out / CHECKPOINT, self.out / CURVES, key, self.save_every),
            seed=options.seed,
            progress=self.progress,
        )
        course.fail(preparing.failures)
        if course.resume():
            self.note(f"going on from step {course.standing.step} of {course.schedule.steps}")
        elif course.keeper.path.is_file():
            self.note(f"{course.keeper.path} is of a training with other data or options: beginning anew")
        return course

    def _run(self, course: Course) -> None:
        """Make all steps; the first process shows them in TensorBoard, if it shall."""
        if not (self.tensorboard and self.processes.first):
            course.run()
            return
        with closing(Board(self.out / BOARD, course.standing.step)) as board:
            course.run(board.add)

    def _about(self, subject: Subject, course: Course) -> dict[str, Any]:
        last, tags = course.standing.checks[-1], len(subject.choice.dictionary)
        return {
            "corpus": self.corpus.path.name,
            "dictionary": subject.choice.source,
            "tags": tags,
            "tags_never_seen": int((subject.lessons.counts(tags) == 0).sum()),
            "pictures": len(subject.lessons),
            "pictures_held_out": len(subject.aside),
            "left_out": subject.lessons.left_out,
            "unreadable": len(course.standing.failures),
            **asdict(self.options),
            "steps": course.standing.step,
            "epochs_seen": last.epoch,
            "rate_at_the_end": last.rate,
            "loss": last.training_loss,
            "validation_loss": last.validation_loss,
        }

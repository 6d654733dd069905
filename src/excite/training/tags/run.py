"""A known classifier learns the tags of a corpus: the paper's procedure for its 18,157 tags, or a quicker one."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from excite.jobs.loop import unwatched
from excite.training.tags.curves import Board
from excite.training.tags.distributed import Together
from excite.training.tags.loop import Course, Keeper
from excite.training.tags.measuring import measure
from excite.training.tags.options import Options
from excite.training.tags.preparing import Preparing
from excite.training.tags.result import BOARD, CHECKPOINT, CURVES, MEASURES, files_in, finished, save_result
from excite.training.tags.schedule import Schedule
from excite.training.tags.setup import Subject

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from excite.jobs.loop import Watch
    from excite.tags.corpus import Corpus
    from excite.tags.images import Pictures
    from excite.training.tags.model import Trainee

__all__ = ["TagTraining"]


@dataclass(eq=False)
class TagTraining:
    """The training of a tag classifier.

    Args:
        corpus: the pictures and their tags.
        pictures: where its pictures are.
        out: the folder for the classifier, and for all that a training needs to go on where it was stopped; one that
            all processes see.
        options: how to train.
        model: the classifier to begin with, as in `excite.load`.
        weights: a file for it.
        dictionary: the tags to learn; by default the file beside the corpus,
        min_count: or those seen at least so often.
        workers: how many processes decode pictures.
        save_every: seconds between two checkpoints at most.
        tensorboard: write the curves for TensorBoard too.
        processes: who trains together.
        watch: shows how far the work is.
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
    watch: Watch = unwatched
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
        preparing = Preparing(trainee, subject.classifier, self.pictures, self.out, options, self.workers, self.watch)
        course = Course(
            trainee=trainee,
            schedule=Schedule(len(lessons), options.batch, options.epochs, options.rate, options.checks),
            lessons=lessons,
            groups=subject.groups,
            source=preparing.source(lessons),
            aside=preparing.aside(subject.aside),
            keeper=Keeper(self.out / CHECKPOINT, self.out / CURVES, key, self.save_every),
            seed=options.seed,
            watch=self.watch,
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

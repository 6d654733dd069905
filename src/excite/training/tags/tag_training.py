"""A known classifier learns the tags of a corpus: the paper's procedure for its 18,157 tags, or a quicker one."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from excite.errors import ModelError
from excite.models import Preprocess, find_card, load
from excite.models.folder import FACTS, Saved, read_saved, save_classifier
from excite.models.identity import network_identity
from excite.readouts.save import save_text
from excite.tags.corpus import Corpus
from excite.training.output_layer import Output, with_new_output
from excite.training.sources import unwatched
from excite.training.tags.card import card as card_text
from excite.training.tags.choosing import chosen_dictionary
from excite.training.tags.course import Course, Keeper
from excite.training.tags.curves import Board
from excite.training.tags.lessons import read_lessons
from excite.training.tags.loading import groups_of
from excite.training.tags.measuring import measure
from excite.training.tags.options import Options
from excite.training.tags.preparing import Preparing
from excite.training.tags.schedule import Schedule
from excite.training.tags.together import Together
from excite.training.tags.trainee import Trainee, begin_at_frequencies
from excite.training.views import Views, noise

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from excite.models import Card
    from excite.tags.pictures import Pictures
    from excite.training.sources import Watch
    from excite.training.tags.choosing import Choice
    from excite.training.tags.curves import Check
    from excite.training.tags.lessons import Lessons

__all__ = ["TagTraining"]

CHECKPOINT, CURVES, BOARD = "training.safetensors", "curves.csv", "tensorboard"
DICTIONARY, MEASURES, README = "dictionary.csv", "measures.csv", "README.md"


@dataclass(eq=False)
class TagTraining:
    """The training of a tag classifier.

    Args:
        corpus: the Parquet file.
        pictures: where its pictures are.
        out: the folder for the classifier, and for all that a training needs to go on where it was stopped; one that
            all processes see.
        options: how to train.
        model: the classifier to begin with, as in `excite.load`.
        weights: a file for it.
        dictionary: the tags to learn; by default the file beside the corpus,
        min_count: or those seen at least so often.
        workers: how many processes decode pictures.
        save_every: seconds between two checkpoints.
        tensorboard: write the curves for TensorBoard too.
        processes: who trains together.
        watch: shows how far the work is.
        note: is told what a user should know, a line each.
        command: how the training was called, for its card.

    Example:
        >>> training = TagTraining(Path("kept.parquet"), open_pictures("photos"), Path("mine"))  # doctest: +SKIP
        >>> training.train()["map"]                                                              # doctest: +SKIP
        0.21
    """

    corpus: Path
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
        options, corpus = self.options, Corpus(self.corpus)
        choice = chosen_dictionary(corpus, self.dictionary, self.min_count)
        lessons, aside = read_lessons(corpus, choice.dictionary, options.first, options.held_out)
        if choice.unspeakable:
            self.note(f"{len(choice.unspeakable)} tags of the dictionary are left out: blank, or nothing but dashes")
        card = find_card(self.model)
        base = load(self.model, weights=self.weights, fully_convolutional=False)
        if not isinstance(base.preprocess, Preprocess):
            raise ModelError(f"{card.name} prepares its pictures in an unknown way: it cannot be trained.")
        network, layer = with_new_output(card, base.module, len(choice.dictionary), options.seed)
        begin_at_frequencies(network.get_submodule(layer), lessons.counts(len(choice.dictionary)), len(lessons))
        key = self._key(network, base.preprocess, choice, lessons, aside)
        done = self._done(key)
        if done is not None:
            return done
        output = Output.of(network, layer, Views(base.preprocess, options.seed)(noise(), "noise", (0, 1)))
        trainee = Trainee(
            network, layer, output, everything=options.everything, momentum=options.momentum, processes=self.processes
        )
        preparing = Preparing(trainee, base, self.pictures, self.out, options, self.workers, self.watch)
        course = self._course(trainee, lessons, aside, preparing, key)
        course.run()
        measures = measure(course.aside, trainee, choice.dictionary, self._measures)
        course.share_failures()
        facts = {**self._about(choice, course, aside), **measures, "key": key}
        files = self._save(card, base.preprocess, network, choice, facts) if self.processes.first else []
        self.processes.wait()
        return {**facts, "already": False, "lines": course.standing.failures.lines, "files": files}

    @property
    def _measures(self) -> Path | None:
        """Where the first process, and only that, writes what was measured."""
        return self.out / MEASURES if self.processes.first else None

    def _key(self, network: nn.Module, preprocess: Preprocess, choice: Choice, lessons: Lessons, aside: Lessons) -> str:
        """Changes when a training would take another course."""
        tags = hashlib.blake2b("\0".join(choice.dictionary.tags).encode(errors="surrogatepass"), digest_size=16)
        facts = [
            network_identity(network),
            repr(preprocess),
            tags.hexdigest(),
            lessons.digest(),
            aside.digest(),
            asdict(self.options),
        ]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]

    def _done(self, key: str) -> dict[str, Any] | None:
        """What was found when this same training was finished before."""
        if not (self.out / FACTS).is_file():
            return None
        facts = dict(read_saved(self.out).training)
        if facts.get("key") != key:
            return None
        return {**facts, "already": True, "lines": [], "files": [str(path) for path in self._files() if path.is_file()]}

    def _files(self) -> list[Path]:
        return [self.out / name for name in (README, DICTIONARY, CURVES, MEASURES, "weights.safetensors", FACTS)]

    def _course(self, trainee: Trainee, lessons: Lessons, aside: Lessons, preparing: Preparing, key: str) -> Course:
        options = self.options
        board: list[Board] = []

        def checked(check: Check) -> None:
            if self.tensorboard:
                if not board:
                    board.append(Board(self.out / BOARD, check.step - 1))
                board[0].add(check)

        course = Course(
            trainee=trainee,
            schedule=Schedule(len(lessons), options.batch, options.epochs, options.rate, options.checks),
            lessons=lessons,
            groups=groups_of(lessons, self.pictures),
            source=preparing.source(lessons),
            aside=preparing.aside(aside),
            keeper=Keeper(self.out / CHECKPOINT, self.out / CURVES, key, self.save_every),
            seed=options.seed,
            watch=self.watch,
            checked=checked,
        )
        if course.resume():
            self.note(f"going on from step {course.standing.step} of {course.schedule.steps}")
        elif course.keeper.path.is_file():
            self.note(f"{course.keeper.path} is of a training with other data or options: beginning anew")
        course.fail(preparing.failures)
        return course

    def _about(self, choice: Choice, course: Course, aside: Lessons) -> dict[str, Any]:
        standing, last = course.standing, course.standing.checks[-1]
        return {
            "corpus": self.corpus.name,
            "dictionary": choice.source,
            "tags": len(choice.dictionary),
            "pictures": len(course.lessons),
            "pictures_held_out": len(aside),
            "left_out": course.lessons.left_out,
            "unreadable": len(standing.failures),
            **asdict(self.options),
            "steps": standing.step,
            "epochs_seen": last.epoch,
            "rate_at_the_end": last.rate,
            "loss": last.training_loss,
            "validation_loss": last.validation_loss,
        }

    def _save(
        self, card: Card, preprocess: Preprocess, network: nn.Module, choice: Choice, facts: dict[str, Any]
    ) -> list[str]:
        """Write the folder; what says that the training is finished comes last."""
        is_folder = (Path(self.model) / FACTS).is_file()
        saved = Saved(
            base=read_saved(Path(self.model)).base if is_folder else card.name,
            labels=tuple((tag,) for tag in choice.dictionary.tags),
            multilabel=True,
            layers=card.layers,
            size=preprocess.shorter_side,
            fully_convolutional=card.fully_convolutional,
            training=facts,
        )
        choice.dictionary.save(self.out / DICTIONARY)
        save_text(card_text(saved.base, len(choice.dictionary), facts, self.command), self.out / README)
        save_classifier(self.out, network.cpu(), saved)
        (self.out / CHECKPOINT).unlink(missing_ok=True)
        return [str(path) for path in self._files() if path.is_file()]

"""The training loop: the learning-rate schedule, loss curves, checkpoints, and the steps themselves."""

from __future__ import annotations

import json
import time
from contextlib import closing, contextmanager
from dataclasses import asdict, astuple, dataclass, field, fields
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch

from excite.errors import DataError, ExciteError
from excite.io.files import save_csv
from excite.training.sgd import restore_tensors, restore_training, save_tensors, training_tensors
from excite.training.tags.batches import epoch_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from excite.jobs.loop import Progress
    from excite.training.tags.batches import FixedViews, FreshViews, StepPlan
    from excite.training.tags.dataset import TagDataset
    from excite.training.tags.model import Model
    from excite.training.tags.validation import Validation

PATIENCE = 3  # checks
LEAST_GAIN = 0.001  # of the loss
FACTOR = 10  # by which the rate is divided
REDUCTIONS = 3  # of the rate, at most
MESSAGES = 5  # of unreadable images
AT_CHECK = 0.1  # of the usual time between two checkpoints
FAILED = "failed"  # the tensor of unreadable rows in a checkpoint


@dataclass(frozen=True)
class Schedule:
    """The length of a training and its learning rate, a pure function of the losses so far.

    Attributes:
        pictures: the number of training images.
        batch: images per step.
        epochs: at most.
        rate: the initial learning rate.
        checks: evaluations of the loss per epoch.
    """

    pictures: int
    batch: int = 64
    epochs: int = 3
    rate: float = 0.01
    checks: int = 4

    @property
    def epoch_steps(self) -> int:
        """Steps in an epoch."""
        return -(-self.pictures // self.batch)

    @property
    def steps(self) -> int:
        """Steps in all."""
        return self.epochs * self.epoch_steps

    def is_check(self, step: int) -> bool:
        """Whether the loss is evaluated after so many steps; always at the end of an epoch.

        Example:
            >>> [step for step in range(1, 11) if Schedule(100, batch=10, checks=3).is_check(step)]
            [4, 7, 10]
        """
        parts, within = min(self.checks, self.epoch_steps), (step - 1) % self.epoch_steps
        return within * parts // self.epoch_steps < (within + 1) * parts // self.epoch_steps

    def rate_after(self, losses: Sequence[float]) -> float:
        """The rate after these losses: divided by 10 at each plateau, three times at most.

        Example:
            >>> Schedule(64).rate_after([5, 4, 4, 4]), Schedule(64).rate_after([5, 4, 4, 4, 4])
            (0.01, 0.001)
        """
        return self.rate / float(FACTOR) ** min(self._plateaus(losses), REDUCTIONS)

    def is_over(self, losses: Sequence[float]) -> bool:
        """Whether the loss has plateaued at the lowest rate too."""
        return self._plateaus(losses) > REDUCTIONS

    def _plateaus(self, losses: Sequence[float]) -> int:
        """The number of plateaus: the best of the last three checks gains less than a thousandth on those before.

        These are the checks at the same rate and the last one at the rate before it.
        """
        plateaus = start = 0
        for end in range(1, len(losses) + 1):
            seen = losses[start:end]
            if len(seen) > PATIENCE and min(seen[-PATIENCE:]) > min(seen[:-PATIENCE]) * (1 - LEAST_GAIN):
                plateaus, start = plateaus + 1, end - 1
        return plateaus


@dataclass(frozen=True)
class CurvePoint:
    """One evaluation of the losses.

    Attributes:
        step: steps so far.
        epoch: epochs so far, such as 1.25.
        rate: the learning rate of the last steps.
        training_loss: the mean per image since the last point.
        validation_loss: the mean per held-out image; None without any.
        pictures_per_second: since the last point or start; the only value that differs between equal trainings.
    """

    step: int
    epoch: float
    rate: float
    training_loss: float
    validation_loss: float | None
    pictures_per_second: float


def save_curves(points: Sequence[CurvePoint], path: Path) -> Path:
    """Write the curves as CSV."""
    return save_csv([[field.name for field in fields(CurvePoint)], *map(astuple, points)], path)


def check_tensorboard() -> None:
    """Raise an error, before the training, if TensorBoard is missing."""
    if find_spec("tensorboard") is None:
        raise ExciteError("--tensorboard needs the package tensorboard: pip install 'excite[tensorboard]'")


@contextmanager
def tensorboard_writer(folder: Path, after: int) -> Iterator[Callable[[CurvePoint], None]]:
    """A function that writes points for TensorBoard; those of earlier runs behind the step ``after`` are hidden."""
    check_tensorboard()
    writer: Any = import_module("torch.utils.tensorboard").SummaryWriter
    with closing(writer(str(folder), purge_step=after + 1 if after else None)) as board:

        def add(point: CurvePoint) -> None:
            for name in ("rate", "training_loss", "validation_loss", "pictures_per_second"):
                if (value := getattr(point, name)) is not None:
                    board.add_scalar(name, value, point.step)
            board.flush()

        yield add


@dataclass
class ReadFailures:
    """The images that could not be read so far, each counted once.

    Attributes:
        rows: of the data set; those of held-out images are negative.
        lines: the messages of the first few.
    """

    rows: set[int] = field(default_factory=set)
    lines: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, failed: Iterable[tuple[int, str]]) -> None:
        """Add rows and messages, if they are new."""
        for row, reason in failed:
            if row not in self.rows:
                self.rows.add(row)
                if len(self.lines) < MESSAGES:
                    self.lines.append(reason)


@dataclass
class TrainingState:
    """The progress of a training, without its tensors.

    Attributes:
        step: steps made.
        points: the curves so far.
        loss: summed over the images since the last point,
        pictures: and the number of these.
        failures: the images that could not be read.
    """

    step: int = 0
    points: list[CurvePoint] = field(default_factory=list)
    loss: float = 0.0
    pictures: int = 0
    failures: ReadFailures = field(default_factory=ReadFailures)

    @property
    def losses(self) -> list[float]:
        """The losses that the rate follows: of validation, or of training if no images are held out."""
        return [
            point.training_loss if point.validation_loss is None else point.validation_loss for point in self.points
        ]


def save_checkpoint(path: Path, key: str, model: Model, state: TrainingState) -> None:
    """Write everything that the next step depends on, as tensors and JSON, atomically."""
    own = training_tensors(model.trained, model.sgd)
    tensors = {name: tensor.cpu().contiguous() for name, tensor in own.items()}
    tensors[FAILED] = torch.tensor(sorted(state.failures.rows), dtype=torch.int64)
    facts = {
        "step": state.step,
        "checks": [asdict(point) for point in state.points],
        "loss": state.loss,
        "pictures": state.pictures,
        "lines": state.failures.lines,
        "scaler": model.scaler.state_dict(),
    }
    save_tensors(path, tensors, {"key": key, "facts": json.dumps(facts)})


def read_checkpoint(path: Path, key: str, model: Model) -> TrainingState | None:
    """Restore a model from a checkpoint with the same key; None if there is none.

    Raises:
        ModelError: the file is damaged.
    """

    def restore(tensors: dict[str, Tensor], metadata: dict[str, Any]) -> TrainingState:
        facts: dict[str, Any] = json.loads(metadata["facts"])
        restore_training(model.trained, model.sgd, tensors)
        if facts["scaler"]:
            model.scaler.load_state_dict(facts["scaler"])
        points = [CurvePoint(**point) for point in facts["checks"]]
        failures = ReadFailures(set(tensors[FAILED].tolist()), facts["lines"])
        return TrainingState(facts["step"], points, facts["loss"], facts["pictures"], failures)

    return restore_tensors(path, key, restore)


@dataclass
class Checkpointer:
    """Writes checkpoints and curves.

    Attributes:
        path: of the checkpoint.
        curves: the CSV file.
        key: changes when the training would take another course.
        every: seconds between two checkpoints; after a check a tenth of it suffices. Small corpora have many checks,
            and syncing a file takes longer than a step.
    """

    path: Path
    curves: Path
    key: str
    every: float = 300
    _last: float = field(default_factory=time.monotonic)

    def is_due(self, *, at_check: bool) -> bool:
        """Whether it is time for a checkpoint."""
        return time.monotonic() - self._last >= self.every * (AT_CHECK if at_check else 1)

    def save(self, model: Model, state: TrainingState) -> None:
        """Write a checkpoint, if this is the first process."""
        if model.processes.first:
            save_curves(state.points, self.curves)
            save_checkpoint(self.path, self.key, model, state)
        self._last = time.monotonic()


@dataclass(eq=False)
class TrainingLoop:
    """A training in progress.

    Attributes:
        dataset: the training images.
        groups: the group (shard) of each.
        source: of their features.
        validation: the held-out images.
        seed: of the order of the images.
        state: restored by `resume`.
    """

    model: Model
    schedule: Schedule
    dataset: TagDataset
    groups: NDArray[np.int64]
    source: FreshViews | FixedViews
    validation: Validation
    checkpointer: Checkpointer
    seed: int
    progress: Progress
    state: TrainingState = field(default_factory=TrainingState)
    _failed: list[tuple[int, str]] = field(default_factory=list)
    _seen: int = 0  # images since the last point or the start
    _since: float = field(default_factory=time.monotonic)

    def resume(self) -> bool:
        """Continue from the last checkpoint of the same training; whether there was one."""
        found = read_checkpoint(self.checkpointer.path, self.checkpointer.key, self.model)
        self.state = found or self.state
        return found is not None

    def fail(self, failed: Iterable[tuple[int, str]]) -> None:
        """Add unreadable images; they are exchanged between processes at the next checkpoint."""
        self._failed.extend(failed)

    def run(self, report: Callable[[CurvePoint], None] = lambda _point: None) -> None:
        """Make all remaining steps, and report each new point of the curves."""
        left, reported = self.schedule.steps - self.state.step, len(self.state.points)
        for _ in self.progress(self._steps(), left, "steps"):
            for point in self.state.points[reported:]:
                report(point)
            reported = len(self.state.points)

    def _steps(self) -> Iterator[dict[str, int]]:
        schedule, state = self.schedule, self.state
        units = torch.from_numpy(self.dataset.units)
        rate = schedule.rate_after(state.losses)
        if schedule.is_over(state.losses):
            return
        over = False
        self._since = time.monotonic()
        for batch in self.source(self._plans()):
            is_check = schedule.is_check(state.step + 1)
            save = self.model.processes.first and self.checkpointer.is_due(at_check=is_check)
            loss, seen, save = self.model.step(batch.values, units[torch.from_numpy(batch.rows)], rate, save=save)
            self.fail(batch.failures)
            state.step += 1
            state.loss += loss
            state.pictures += seen
            self._seen += seen
            if is_check:
                self._check(rate)
                rate = schedule.rate_after(state.losses)
                over = state.step == schedule.steps or schedule.is_over(state.losses)
            if save or over:
                self.share_failures()
                self.checkpointer.save(self.model, state)
            yield {"step": state.step}
            if over:
                return

    def _plans(self) -> Iterator[StepPlan]:
        """The remaining steps, with this process's share of the rows of each."""
        processes, batch = self.model.processes, self.schedule.batch
        epoch, within = divmod(self.state.step, self.schedule.epoch_steps)
        for number in range(epoch, self.schedule.epochs):
            order = epoch_order(self.groups, self.seed, number)
            first = within if number == epoch else 0
            for step in range(first, self.schedule.epoch_steps):
                yield number, order[step * batch : (step + 1) * batch][processes.rank :: processes.size]

    def share_failures(self) -> None:
        """Exchange the unreadable images between all processes."""
        failed, self._failed = self._failed + self.validation.failures, []
        self.validation.failures = []
        for part in self.model.processes.all_gather(failed):
            self.state.failures.add(part)

    def _check(self, rate: float) -> None:
        """Evaluate the losses: one more point of the curves."""
        state = self.state
        if not state.pictures:
            self.share_failures()
            first = next(iter(state.failures.lines), "no reason is known")
            raise DataError(f"not one image since the last check can be read; the first of all: {first}")
        point = CurvePoint(
            step=state.step,
            epoch=round(state.step / self.schedule.epoch_steps, 6),
            rate=rate,
            training_loss=state.loss / state.pictures,
            validation_loss=self.validation.loss(),
            pictures_per_second=round(self._seen / max(time.monotonic() - self._since, 1e-9), 1),
        )
        state.points.append(point)
        state.loss, state.pictures, self._seen, self._since = 0.0, 0, 0, time.monotonic()

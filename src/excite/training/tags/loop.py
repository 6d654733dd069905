"""The training loop: the learning-rate schedule, loss curves, checkpoints, and the steps themselves."""

from __future__ import annotations

import time
from dataclasses import asdict, astuple, dataclass, field, fields
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from excite.errors import DataError, ExciteError, ModelError
from excite.io.files import save_csv
from excite.training.tags.dataset import FIRST, Batch, StepPlan, TagDataset, batch_sampler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from excite.jobs.loop import Progress
    from excite.training.tags.model import Model
    from excite.training.tags.validation import Validation

PATIENCE = 3  # checks
LEAST_GAIN = 0.001  # of the loss
FACTOR = 10.0  # by which the rate is divided
REDUCTIONS = 3  # of the rate, at most
MESSAGES = 5  # of unreadable images
AT_CHECK = 0.1  # of the usual time between two checkpoints
CHECKPOINT, CURVES = "training.safetensors", "curves.csv"


@dataclass(frozen=True)
class TrainingOptions:
    """Hyperparameters; by default the paper's."""

    layers: str = "output"  # "output", the last one only, or "all"
    first: int = FIRST  # the number of an image's tags that are learnt
    epochs: int = 3  # at most
    batch: int = 64  # images per step, of all processes together
    rate: float = 0.01  # the learning rate, divided by 10 whenever the validation loss plateaus
    momentum: float = 0.9  # the weight of the previous step
    held_out: float = 0.1  # the share of validation images
    checks: int = 4  # evaluations of the loss per epoch
    views: int = 0  # random views of each image, computed once; 0: a new one in each epoch
    seed: int = 0  # of the views, the order and the initial weights

    def __post_init__(self) -> None:
        if self.layers not in {"output", "all"}:
            raise ModelError(f"there are no layers {self.layers!r} to train: choose output or all")
        if self.layers == "all" and self.views:
            raise ModelError("features are kept only while the layers below stay as they are: leave --views out")

    def is_check(self, step: int, epoch_steps: int) -> bool:
        """Whether the loss is evaluated after so many steps; always at the end of an epoch."""
        parts, within = min(self.checks, epoch_steps), (step - 1) % epoch_steps
        return within * parts // epoch_steps < (within + 1) * parts // epoch_steps


class PlateauSchedule(ReduceLROnPlateau):
    """Divides the rate by 10 at a plateau, three times at most: three checks without a gain of a thousandth.

    A lower rate is compared with the last loss of the one before, not with its best. At the fourth plateau, the
    training is over.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer, factor=1 / FACTOR, patience=PATIENCE - 1, threshold=LEAST_GAIN, eps=0)
        self.rate: float = optimizer.param_groups[0]["lr"]
        self.plateaus = 0

    def step(self, loss: float) -> None:  # type: ignore[override]  # without the deprecated number of an epoch
        """Follow one more loss."""
        (group,) = self.optimizer.param_groups
        before = group["lr"]
        super().step(loss)
        if group["lr"] < before:
            self.best, self.plateaus = loss, self.plateaus + 1
            group["lr"] = self.rate / FACTOR ** min(self.plateaus, REDUCTIONS)  # rounded once

    @property
    def is_over(self) -> bool:
        """Whether the loss has plateaued at the lowest rate too."""
        return self.plateaus > REDUCTIONS


@dataclass(frozen=True)
class CurvePoint:
    """One evaluation of the losses."""

    step: int  # steps so far
    epoch: float  # epochs so far, such as 1.25
    rate: float  # the learning rate of the last steps
    training_loss: float  # the mean per image since the last point
    validation_loss: float | None  # the mean per held-out image; None without any
    pictures_per_second: float  # since the last point or start; the only value that differs between equal trainings

    @property
    def followed_loss(self) -> float:
        """The loss that the rate follows: of validation, or of training if no images are held out."""
        return self.training_loss if self.validation_loss is None else self.validation_loss


def check_tensorboard() -> None:
    """Raise an error, before the training, if TensorBoard is missing."""
    if find_spec("tensorboard") is None:
        raise ExciteError("--tensorboard needs the package tensorboard: pip install 'excite[tensorboard]'")


def tensorboard_writer(folder: Path, after: int) -> Callable[[CurvePoint], None]:
    """A function that writes points for TensorBoard; those of earlier runs behind the step ``after`` are hidden."""
    writer: Any = import_module("torch.utils.tensorboard").SummaryWriter
    board = writer(str(folder), purge_step=after + 1 if after else None)

    def add(point: CurvePoint) -> None:
        for name in ("rate", "training_loss", "validation_loss", "pictures_per_second"):
            if (value := getattr(point, name)) is not None:
                board.add_scalar(name, value, point.step)
        board.flush()

    return add


@dataclass
class TrainingState:
    """The progress of a training, without its weights."""

    step: int = 0  # steps made
    checks: list[CurvePoint] = field(default_factory=list)  # the curves so far
    loss: float = 0.0  # summed over the images since the last point
    pictures: int = 0  # and the number of these
    unreadable: set[int] = field(default_factory=set)  # rows of images; those of held-out ones are negative
    lines: list[str] = field(default_factory=list)  # the messages of the first few

    def fail(self, failed: Iterable[tuple[int, str]]) -> None:
        """Add unreadable rows and the reasons, each once."""
        for row, reason in failed:
            if row not in self.unreadable:
                self.unreadable.add(row)
                self.lines += [reason] if len(self.lines) < MESSAGES else []


def save_checkpoint(path: Path, key: str, model: Model, state: TrainingState) -> None:
    """Write everything that the next step depends on, as tensors and JSON, atomically."""
    facts = {**asdict(state), "scaler": model.scaler.state_dict()}
    failed = torch.tensor(sorted(facts.pop("unreadable")), dtype=torch.int64)
    model.descent.save(path, key, {"facts": facts}, failed=failed)


def read_checkpoint(path: Path, key: str, model: Model) -> TrainingState | None:
    """Restore a model from a checkpoint with the same key; None if there is none."""
    found: list[TrainingState] = []

    def restore(metadata: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        facts = metadata["facts"]
        if scaler := facts.pop("scaler"):
            model.scaler.load_state_dict(scaler)
        checks = [CurvePoint(**point) for point in facts.pop("checks")]
        found.append(TrainingState(checks=checks, unreadable=set(tensors["failed"].tolist()), **facts))

    return found[0] if model.descent.resume(path, key, restore) else None


@dataclass(eq=False)
class TrainingLoop:
    """A training in progress."""

    model: Model  # the network
    options: TrainingOptions  # hyperparameters
    dataset: TagDataset  # the training images
    groups: NDArray[np.int64]  # the group (shard) of each
    source: Callable[[Iterable[StepPlan]], Iterator[Batch]]  # gives the features for each step
    validation: Validation  # the held-out images
    folder: Path  # for checkpoints and curves
    key: str  # changes when the training would take another course
    save_every: float  # seconds between two checkpoints; after a check, a tenth suffices
    progress: Progress
    failed: list[tuple[int, str]]  # unreadable images that the other processes do not know yet
    state: TrainingState = field(default_factory=TrainingState)  # restored by `resume`
    _saved: float = field(default_factory=time.monotonic)
    _seen: int = 0  # images since the last point or the start
    _since: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.epoch_steps = -(-len(self.dataset) // self.options.batch)
        self.steps = self.options.epochs * self.epoch_steps
        self.schedule = PlateauSchedule(self.model.descent.sgd)

    def resume(self) -> bool:
        """Continue from the last checkpoint of the same training; whether there was one."""
        found = read_checkpoint(self.folder / CHECKPOINT, self.key, self.model)
        self.state = found or self.state
        for point in self.state.checks:
            self.schedule.step(point.followed_loss)
        return found is not None

    def run(self, report: Callable[[CurvePoint], None]) -> None:
        """Make all remaining steps, and report each new point of the curves."""
        if not self.schedule.is_over:
            for _ in self.progress(self._steps(report), self.steps - self.state.step, "steps"):
                pass

    def _steps(self, report: Callable[[CurvePoint], None]) -> Iterator[dict[str, int]]:
        state, options, processes = self.state, self.options, self.model.processes
        units, over = torch.from_numpy(self.dataset.units), False
        plans = batch_sampler(self.groups, options.seed, options.batch, options.epochs, state.step, processes)
        self._since = time.monotonic()
        for batch in self.source(plans):
            is_check = options.is_check(state.step + 1, self.epoch_steps)
            due = time.monotonic() - self._saved >= self.save_every * (AT_CHECK if is_check else 1)
            own_units = units[torch.from_numpy(batch.rows)]
            loss, seen, save = self.model.step(batch.values, own_units, save=processes.first and due)
            self.failed.extend(batch.failures)
            state.step += 1
            state.loss += loss
            state.pictures += seen
            self._seen += seen
            if is_check:
                report(self._check())
                over = state.step == self.steps or self.schedule.is_over
            if save or over:
                self._save()
            yield {"step": state.step}
            if over:
                return

    def _check(self) -> CurvePoint:
        """Evaluate the losses: one more point of the curves."""
        state = self.state
        if not state.pictures:
            self.share_failures()
            first = next(iter(state.lines), "no reason is known")
            raise DataError(f"not one image since the last check can be read; the first of all: {first}")
        point = CurvePoint(
            step=state.step,
            epoch=round(state.step / self.epoch_steps, 6),
            rate=self.model.descent.sgd.param_groups[0]["lr"],
            training_loss=state.loss / state.pictures,
            validation_loss=self.validation.loss(),
            pictures_per_second=round(self._seen / max(time.monotonic() - self._since, 1e-9), 1),
        )
        state.checks.append(point)
        self.schedule.step(point.followed_loss)
        state.loss, state.pictures, self._seen, self._since = 0.0, 0, 0, time.monotonic()
        return point

    def _save(self) -> None:
        """Write a checkpoint and the curves, if this is the first process."""
        self.share_failures()
        if self.model.processes.first:
            columns = [column.name for column in fields(CurvePoint)]
            save_csv([columns, *map(astuple, self.state.checks)], self.folder / CURVES)
            save_checkpoint(self.folder / CHECKPOINT, self.key, self.model, self.state)
        self._saved = time.monotonic()

    def share_failures(self) -> None:
        """Exchange the unreadable images between all processes."""
        failed, self.failed = self.failed + self.validation.failures, []
        self.validation.failures = []
        for part in self.model.processes.all_gather(failed):
            self.state.fail(part)

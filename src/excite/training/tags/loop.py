"""The course of a training: step by step, looked at now and then, and saved so that it can be stopped anywhere."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, astuple, dataclass, field, fields
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, BinaryIO

import torch

from excite.errors import DataError, ExciteError, ModelError
from excite.io.files import atomic_write, save_csv
from excite.training.tags.batches import epoch_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from excite.jobs.loop import Progress
    from excite.training.tags.batches import FixedViews, FreshViews, Plan
    from excite.training.tags.dataset import Lessons
    from excite.training.tags.model import Trainee
    from excite.training.tags.validation import Aside


# When the loss is looked at, and how the learning rate follows it.

PATIENCE = 3  # checks
LEAST_GAIN = 0.001  # of the loss
FACTOR = 10
LOWERED = 3  # times at most


@dataclass(frozen=True)
class Schedule:
    """How long a training lasts, and at which rate it learns.

    Nothing is remembered: the rate is told by the losses of all checks so far, so a training that was stopped needs no
    more than these to go on in the same way.

    Attributes:
        pictures: to learn from.
        batch: images a step.
        epochs: how often each image is seen, at most.
        rate: the learning rate at the start.
        checks: how often the loss is looked at in an epoch.
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
        """Whether the loss is looked at after so many steps; after the last one of an epoch it always is.

        Example:
            >>> [step for step in range(1, 11) if Schedule(100, batch=10, checks=3).is_check(step)]
            [4, 7, 10]
        """
        parts, within = min(self.checks, self.epoch_steps), (step - 1) % self.epoch_steps
        return within * parts // self.epoch_steps < (within + 1) * parts // self.epoch_steps

    def rate_after(self, losses: Sequence[float]) -> float:
        """The rate for the steps behind these checks: a tenth, once the loss has gone flat, three times at most.

        Example:
            >>> Schedule(64).rate_after([5, 4, 4, 4]), Schedule(64).rate_after([5, 4, 4, 4, 4])
            (0.01, 0.001)
        """
        return self.rate / float(FACTOR) ** min(len(self._plateaus(losses)), LOWERED)

    def is_over(self, losses: Sequence[float]) -> bool:
        """Whether the loss has gone flat at the lowest rate too: nothing more is learnt."""
        return len(self._plateaus(losses)) > LOWERED

    def _plateaus(self, losses: Sequence[float]) -> list[int]:
        """After how many checks each plateau was seen: the best of the last three is hardly lower than all before.

        Before are the checks at the same rate and the last one at the rate before it.
        """
        ends: list[int] = []
        start = 0
        for end in range(1, len(losses) + 1):
            seen = losses[start:end]
            if len(seen) > PATIENCE and min(seen[-PATIENCE:]) > min(seen[:-PATIENCE]) * (1 - LEAST_GAIN):
                ends.append(end)
                start = end - 1
        return ends


# Images that cannot be read: counted once each, the first few named, never the end of a training.

NAMED = 5


@dataclass
class Failures:
    """The images that could not be read so far.

    Attributes:
        rows: which, by their place in the corpus; images kept aside have negative ones.
        lines: what was wrong with the first few.

    Example:
        >>> failures = Failures()
        >>> failures.add([(3, "cat.jpg is empty"), (3, "cat.jpg is empty")])
        >>> len(failures)
        1
    """

    rows: set[int] = field(default_factory=set)
    lines: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, failed: Iterable[tuple[int, str]]) -> None:
        """Note rows and reasons, those that are new."""
        for row, reason in failed:
            if row not in self.rows:
                self.rows.add(row)
                if len(self.lines) < NAMED:
                    self.lines.append(reason)


# The curves of a training, for people and their programs: as CSV, and in TensorBoard.


@dataclass(frozen=True)
class Check:
    """What was seen when the loss was looked at.

    Attributes:
        step: steps made so far.
        epoch: how often each image was seen so far, such as 1.25.
        rate: the learning rate of the last steps.
        training_loss: the mean, an image, since the last check.
        validation_loss: the same of the images kept aside; None where there are none.
        pictures_per_second: since the last check or the last start. All else is told by the corpus and the options.
    """

    step: int
    epoch: float
    rate: float
    training_loss: float
    validation_loss: float | None
    pictures_per_second: float

    @property
    def watched(self) -> float:
        """The loss that the rate follows: that of images kept aside; without any, that of training."""
        return self.training_loss if self.validation_loss is None else self.validation_loss


def save_curves(checks: Sequence[Check], path: Path) -> Path:
    """Write the curves as CSV.

    Example:
        >>> save_curves([Check(1, 0.5, 0.01, 7.5, None, 90.0)], Path("curves.csv"))  # doctest: +SKIP
    """
    return save_csv([[field.name for field in fields(Check)], *(astuple(check) for check in checks)], path)


def check_board() -> None:
    """Say that TensorBoard is missing before anything is trained.

    Raises:
        ExciteError: it is.

    Example:
        >>> check_board()
    """
    if find_spec("tensorboard") is None:
        raise ExciteError("--tensorboard needs the package tensorboard: pip install 'excite[tensorboard]'")


class Board:
    """The curves in TensorBoard's files, while they grow.

    Args:
        folder: for the files.
        after: steps that were made before; what an earlier run wrote behind them is not shown again.

    Raises:
        ExciteError: the package is missing.
    """

    def __init__(self, folder: Path, after: int = 0) -> None:
        try:
            writer = import_module("torch.utils.tensorboard").SummaryWriter
        except ImportError:
            raise ExciteError(
                "--tensorboard needs the package tensorboard: pip install 'excite[tensorboard]'"
            ) from None
        self._writer: Any = writer(str(folder), purge_step=after + 1 if after else None)

    def add(self, check: Check) -> None:
        """One more point on each curve."""
        for name in ("rate", "training_loss", "validation_loss", "pictures_per_second"):
            value = getattr(check, name)
            if value is not None:
                self._writer.add_scalar(name, value, check.step)
        self._writer.flush()

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


# Where a training stands, in one file that is either whole or not there: killed at any moment, it goes on from there.
#
# Tensors and JSON, nothing that is run when it is read.

FAILED = "failed"


@dataclass
class Standing:
    """How far a training is, the tensors aside.

    Attributes:
        step: steps made.
        checks: the curves so far.
        loss: summed over the images since the last check,
        pictures: and how many these are.
        failures: the images that could not be read.
    """

    step: int = 0
    checks: list[Check] = field(default_factory=list)
    loss: float = 0.0
    pictures: int = 0
    failures: Failures = field(default_factory=Failures)

    @property
    def losses(self) -> list[float]:
        """What the rate follows."""
        return [check.watched for check in self.checks]


def save_checkpoint(path: Path, key: str, trainee: Trainee, standing: Standing) -> None:
    """Write down all that the next step depends on.

    Args:
        path: the file.
        key: changes when a training would take another course.
        trainee: the network.
        standing: how far it is.
    """
    from safetensors.torch import save

    tensors = {name: tensor.cpu().contiguous() for name, tensor in trainee.state()}
    tensors[FAILED] = torch.tensor(sorted(standing.failures.rows), dtype=torch.int64)
    facts = {
        "step": standing.step,
        "checks": [asdict(check) for check in standing.checks],
        "loss": standing.loss,
        "pictures": standing.pictures,
        "lines": standing.failures.lines,
        "scaler": trainee.scaler.state_dict(),
    }
    content = save(tensors, metadata={"key": key, "facts": json.dumps(facts)})

    def write(file: BinaryIO) -> None:
        file.write(content)

    atomic_write(path, write)


def read_checkpoint(path: Path, key: str, trainee: Trainee) -> Standing | None:
    """Go on from where a training with the same key was saved; None where there is none, or one of another key.

    Raises:
        ModelError: the file is damaged.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            about: dict[str, str] = file.metadata() or {}
            if about.get("key") != key:
                return None
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
        facts: dict[str, Any] = json.loads(about["facts"])
        trainee.restore(tensors, facts["scaler"])
        checks = [Check(**check) for check in facts["checks"]]
        failures = Failures(set(tensors[FAILED].tolist()), facts["lines"])
        return Standing(facts["step"], checks, facts["loss"], facts["pictures"], failures)
    except (SafetensorError, OSError, RecursionError, RuntimeError, ValueError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ModelError(f"{path} is damaged ({reason}): remove it to begin again.") from None


# The course of a training: step by step, looked at now and then, and saved so that it can be stopped anywhere.

AT_CHECK = 0.1  # of the usual time between two saves


@dataclass
class Keeper:
    """Saves how far a training is.

    Attributes:
        path: the file for all that the next step depends on,
        curves: and the one for people who look at the curves.
        key: changes when a training would take another course.
        every: seconds between two saves at most; behind a check a tenth of it is enough. A small corpus has a check
            every moment, and a disk takes longer to be sure of a file than a step takes.
    """

    path: Path
    curves: Path
    key: str
    every: float = 300
    _last: float = field(default_factory=time.monotonic)

    def is_due(self, *, at_check: bool) -> bool:
        """Whether it is time to save."""
        return time.monotonic() - self._last >= self.every * (AT_CHECK if at_check else 1)

    def save(self, trainee: Trainee, standing: Standing) -> None:
        """Only the first process writes."""
        if trainee.processes.first:
            save_curves(standing.checks, self.curves)
            save_checkpoint(self.path, self.key, trainee, standing)
        self._last = time.monotonic()


@dataclass(eq=False)
class Course:
    """A training on its way.

    Attributes:
        trainee: the network.
        schedule: how long it lasts, and at which rate it learns.
        lessons: what there is to learn,
        groups: which images lie together,
        source: and where their features come from.
        aside: the images kept aside.
        keeper: saves how far it is.
        seed: tells the order of the images.
        progress: shows how far it is.
        standing: how far it is.
    """

    trainee: Trainee
    schedule: Schedule
    lessons: Lessons
    groups: NDArray[np.int64]
    source: FreshViews | FixedViews
    aside: Aside
    keeper: Keeper
    seed: int
    progress: Progress
    standing: Standing = field(default_factory=Standing)
    _failed: list[tuple[int, str]] = field(default_factory=list)
    _seen: int = 0  # images since the last check or the start
    _since: float = field(default_factory=time.monotonic)

    def resume(self) -> bool:
        """Go on from the last checkpoint of this same training; whether there was one."""
        found = read_checkpoint(self.keeper.path, self.keeper.key, self.trainee)
        self.standing = found or self.standing
        return found is not None

    def fail(self, failed: Iterable[tuple[int, str]]) -> None:
        """Note images that cannot be read; they are told to the other processes at the next check."""
        self._failed.extend(failed)

    def run(self, checked: Callable[[Check], None] = lambda _check: None) -> None:
        """Make all steps that are left.

        Args:
            checked: is told each check, where somebody wants to know.
        """
        left, told = self.schedule.steps - self.standing.step, len(self.standing.checks)
        for _ in self.progress(self._steps(), left, "steps"):
            fresh, told = self.standing.checks[told:], len(self.standing.checks)
            for check in fresh:
                checked(check)

    def _steps(self) -> Iterator[dict[str, int]]:
        schedule, standing = self.schedule, self.standing
        units = torch.from_numpy(self.lessons.units)
        rate = schedule.rate_after(standing.losses)
        if schedule.is_over(standing.losses):
            return
        over = False
        self._since = time.monotonic()
        for given in self.source(self._plans()):
            is_check = schedule.is_check(standing.step + 1)
            wish = self.trainee.processes.first and self.keeper.is_due(at_check=is_check)
            report = self.trainee.step(given.features, units[torch.from_numpy(given.rows)], rate, wish=wish)
            self.fail(given.failures)
            standing.step += 1
            standing.loss += report.loss
            standing.pictures += report.pictures
            self._seen += report.pictures
            if is_check:
                self._check(rate)
                rate = schedule.rate_after(standing.losses)
                over = standing.step == schedule.steps or schedule.is_over(standing.losses)
            if report.wished or over:
                self.share_failures()
                self.keeper.save(self.trainee, standing)
            yield {"step": standing.step}
            if over:
                return

    def _plans(self) -> Iterator[Plan]:
        """The steps that are left; of each, this process's share of the rows."""
        processes, batch = self.trainee.processes, self.schedule.batch
        epoch, within = divmod(self.standing.step, self.schedule.epoch_steps)
        for number in range(epoch, self.schedule.epochs):
            order = epoch_order(self.groups, self.seed, number)
            first = within if number == epoch else 0
            for step in range(first, self.schedule.epoch_steps):
                yield number, order[step * batch : (step + 1) * batch][processes.rank :: processes.size]

    def share_failures(self) -> None:
        """Every process knows of all images that cannot be read."""
        failed, self._failed = self._failed + self.aside.failures, []
        self.aside.failures = []
        for part in self.trainee.processes.gathered(failed):
            self.standing.failures.add(part)

    def _check(self, rate: float) -> None:
        """Look at the losses."""
        standing = self.standing
        if not standing.pictures:
            self.share_failures()
            first = next(iter(standing.failures.lines), "no reason is known")
            raise DataError(f"not one image since the last check can be read; the first of all: {first}")
        check = Check(
            step=standing.step,
            epoch=round(standing.step / self.schedule.epoch_steps, 6),
            rate=rate,
            training_loss=standing.loss / standing.pictures,
            validation_loss=self.aside.loss(),
            pictures_per_second=round(self._seen / max(time.monotonic() - self._since, 1e-9), 1),
        )
        standing.checks.append(check)
        standing.loss, standing.pictures, self._seen, self._since = 0.0, 0, 0, time.monotonic()

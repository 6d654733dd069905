"""The curves of a training, for people and their programs: as CSV, and in TensorBoard."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from excite.errors import ExciteError
from excite.io.files import save_csv

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Board", "Check", "check_board", "save_curves"]


@dataclass(frozen=True)
class Check:
    """What was seen when the loss was looked at.

    Attributes:
        step: steps made so far.
        epoch: how often each picture was seen so far, such as 1.25.
        rate: the learning rate of the last steps.
        training_loss: the mean, a picture, since the last check.
        validation_loss: the same of the pictures kept aside; None where there are none.
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
        """The loss that the rate follows: that of pictures kept aside; without any, that of training."""
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

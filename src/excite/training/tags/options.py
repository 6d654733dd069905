"""What decides about the course of a training."""

from __future__ import annotations

from dataclasses import dataclass

from excite.errors import ModelError
from excite.training.tags.dataset import FIRST

__all__ = ["Options"]


@dataclass(frozen=True)
class Options:
    """How to train; by default the paper's way.

    Attributes:
        layers: "output", the last one only, or "all".
        first: how many of a picture's tags are learnt.
        epochs: how often each picture is seen, at most.
        batch: pictures a step, of all processes together.
        rate: the learning rate, divided by 10 whenever the loss of the pictures kept aside goes flat.
        momentum: how much of the last step is made again.
        held_out: the share of the pictures that is kept aside.
        checks: how often their loss is looked at in an epoch.
        views: how many random views of each picture are looked at once; 0: a new one in each epoch.
        seed: another one gives other views, another order and other weights to begin with.

    Raises:
        ModelError: they do not go together.

    Example:
        >>> Options(views=4).epochs
        3
    """

    layers: str = "output"
    first: int = FIRST
    epochs: int = 3
    batch: int = 64
    rate: float = 0.01
    momentum: float = 0.9
    held_out: float = 0.1
    checks: int = 4
    views: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.layers not in {"output", "all"}:
            raise ModelError(f"there are no layers {self.layers!r} to train: choose output or all")
        if self.layers == "all" and self.views:
            raise ModelError("features are kept only while the layers below stay as they are: leave --views out")

    @property
    def everything(self) -> bool:
        """Whether all layers are trained."""
        return self.layers == "all"

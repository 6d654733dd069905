"""What a run measures: groups of contenders that take turns, and methods whose memory is watched."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from excite.errors import DataError
from excite.experiments.speed.networks import NETWORKS
from excite.experiments.speed.speed_peers import PEERS
from excite.experiments.speed.timing import C_MWP, FORWARD, GRADIENT, MWP

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "MOST_MAPS",
    "QUICK",
    "QUICK_SECONDS",
    "SECONDS",
    "Kind",
    "Plan",
    "Task",
    "checked_device",
    "numbers",
]

Kind = Literal["pictures", "compiled", "concepts", "layers", "peers", "memory", "endurance"]

FEW = 5  # concepts that share their rounds with the headline; more would take its time
MOST_MAPS = 80  # concepts x pictures at once: beyond it minutes and gigabytes, and nothing new is seen
MOST_PICTURES = 8  # at once, for memory: it grows with the batch and nothing else
SECONDS, QUICK_SECONDS = 20.0, 2.0  # for the rounds of one group
QUICK: dict[str, Any] = {"batches": (1,), "concepts": (1, 5), "all_layers": False, "peers": False, "memory": False}


@dataclass(frozen=True)
class Task:
    """One piece of work, measured as a whole and written down as a whole.

    Attributes:
        kind: "pictures": the headline methods on a batch; "compiled": maps by onnxruntime; "concepts": many on one
            picture; "layers": the paper's figure; "peers": other packages, and ours beside them; "memory": of one
            method; "endurance".
        model: what `excite.load` takes.
        batch: how many pictures at once.
        concepts: which numbers of concepts.
        skipped: those that are too many for this batch.
        method: the one whose memory is watched.
        pictures: how many for endurance.
        compiled: whether compiled maps race with the peers.
    """

    kind: Kind
    model: str
    batch: int = 1
    concepts: tuple[int, ...] = (1,)
    skipped: tuple[int, ...] = ()
    method: str = ""
    pictures: int = 0
    compiled: bool = False

    @property
    def facts(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


@dataclass(frozen=True)
class Plan:
    """What a run is asked to measure; see ``excite bench speed --help``.

    Example:
        >>> [task.kind for task in Plan(models=("vgg16",), **QUICK).tasks()]
        ['pictures']
    """

    models: tuple[str, ...] = NETWORKS
    batches: tuple[int, ...] = (1, 8, 32)
    concepts: tuple[int, ...] = (1, 5, 20, 80)
    all_layers: bool = True
    peers: bool = True
    memory: bool = True
    endurance: int = 0
    compiled: bool = False

    def tasks(self) -> Iterator[Task]:
        """The work, network by network, so that each is loaded once."""
        for model in self.models:
            for batch in self.batches:
                few = tuple(number for number in self.concepts if number <= FEW and number * batch <= MOST_MAPS)
                skipped = tuple(number for number in self.concepts if number * batch > MOST_MAPS)
                yield Task("pictures", model, batch, few, skipped)
                many = tuple(number for number in self.concepts if number > FEW and number * batch <= MOST_MAPS)
                if many:
                    yield Task("concepts", model, batch, many)
            if self.compiled:
                yield Task("compiled", model, concepts=tuple(number for number in self.concepts if number <= FEW))
            if self.all_layers:
                yield Task("layers", model)
            if self.peers:
                few = (1, *(number for number in self.concepts if 1 < number <= FEW))
                yield Task("peers", model, concepts=few, compiled=self.compiled)
            if self.memory:
                yield from self._memory(model)
            if self.endurance:
                yield Task("endurance", model, pictures=self.endurance)

    def _memory(self, model: str) -> Iterator[Task]:
        for batch in self.batches:
            if batch <= MOST_PICTURES:
                for method in (FORWARD, GRADIENT, MWP) if batch == 1 else (GRADIENT,):
                    yield Task("memory", model, batch, method=method)
                for number in self.concepts if batch == 1 else self.concepts[:1]:
                    yield Task("memory", model, batch, (number,), method=C_MWP)
        if self.peers:
            for peer in PEERS:
                yield Task("memory", model, method=peer.name)


def numbers(text: str, option: str) -> tuple[int, ...]:
    """Numbers as typed, with commas between, each once and from small to large.

    Raises:
        DataError: it says something else.

    Example:
        >>> numbers("8,1", "--batches")
        (1, 8)
    """
    words = text.split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise DataError(f"{option} {text}: give numbers from 1 up with commas between, such as 1,8")
    return tuple(sorted({int(word) for word in words}))


def checked_device(device: str) -> str:
    """The device, if this torch can compute there.

    Raises:
        DataError: it cannot.

    Example:
        >>> checked_device("cpu")
        'cpu'
    """
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise DataError(f"--device {device} cannot be used ({str(error).splitlines()[0]}): use cpu") from None
    return device

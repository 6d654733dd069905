"""Several processes that train one classifier, as torchrun starts them; or one process, which is the same with less."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import torch

from excite.errors import ExciteError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor

__all__ = ["Together", "together"]

PATIENCE = timedelta(days=2)  # the others wait while the first process computes features or measures
Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Together:
    """This process among those that train together.

    Attributes:
        rank: its number; the first, 0, is the only one that writes and prints.
        size: how many there are.
        device: where this one computes.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    def share(self, things: list[Thing]) -> list[Thing]:
        """What this process does of a list that all of them know.

        Example:
            >>> Together(rank=1, size=2).share([10, 11, 12])
            [11]
        """
        return things[self.rank :: self.size]

    def add_up(self, tensors: Iterable[Tensor]) -> None:
        """Every process gets the sums over all; in one message, for each costs a way there and back."""
        given = list(tensors)
        if self.size > 1 and given:
            together = torch.cat([tensor.reshape(-1) for tensor in given])
            torch.distributed.all_reduce(together)
            for tensor, part in zip(given, torch.split(together, [one.numel() for one in given]), strict=True):
                tensor.copy_(part.view_as(tensor))

    def gathered(self, thing: Thing) -> list[Thing]:
        """What each process has, in the order of their numbers."""
        if self.size == 1:
            return [thing]
        things: list[Thing | None] = [None] * self.size
        torch.distributed.all_gather_object(things, thing)
        return [each for each in things if each is not None]

    def wait(self) -> None:
        """Until all processes are here."""
        if self.size > 1:
            torch.distributed.barrier()


@contextmanager
def together() -> Iterator[Together]:
    """This process among the others of its torchrun; alone without one.

    Raises:
        ExciteError: torchrun's variables are there, but the others cannot be reached.

    Example:
        >>> with together() as processes:
        ...     processes.rank, processes.size
        (0, 1)
    """
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield Together(device=device)
        return
    try:
        torch.distributed.init_process_group("nccl" if gpu else "gloo", timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ExciteError(f"the other processes of this torchrun cannot be reached: {reason}") from None
    try:
        yield Together(torch.distributed.get_rank(), torch.distributed.get_world_size(), device)
    finally:
        torch.distributed.destroy_process_group()

"""The processes of a torchrun that train one classifier; a single process is the trivial case."""

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

PATIENCE = timedelta(days=2)  # the others wait while the first process extracts features or measures
Value = TypeVar("Value")


@dataclass(frozen=True)
class Distributed:
    """This process within its group.

    Attributes:
        rank: its number; only the first, 0, writes and prints.
        size: the number of processes.
        device: of this process.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    def all_reduce(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its sum over all processes; in one message, as each costs a round trip."""
        given = list(tensors)
        if self.size > 1 and given:
            joined = torch.cat([tensor.reshape(-1) for tensor in given])
            torch.distributed.all_reduce(joined)
            for tensor, part in zip(given, torch.split(joined, [one.numel() for one in given]), strict=True):
                tensor.copy_(part.view_as(tensor))

    def all_gather(self, value: Value) -> list[Value]:
        """The values of all processes, by rank."""
        if self.size == 1:
            return [value]
        values: list[Value | None] = [None] * self.size
        torch.distributed.all_gather_object(values, value)
        return [each for each in values if each is not None]

    def wait(self) -> None:
        """Until all processes are here."""
        if self.size > 1:
            torch.distributed.barrier()


@contextmanager
def distributed() -> Iterator[Distributed]:
    """Join the process group of torchrun, if started by it.

    Raises:
        ExciteError: torchrun's variables are set, but the other processes cannot be reached.

    Example:
        >>> with distributed() as processes:
        ...     processes.rank, processes.size
        (0, 1)
    """
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield Distributed(device=device)
        return
    try:
        torch.distributed.init_process_group("nccl" if gpu else "gloo", timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ExciteError(f"the other processes of this torchrun cannot be reached: {reason}") from None
    try:
        yield Distributed(torch.distributed.get_rank(), torch.distributed.get_world_size(), device)
    finally:
        torch.distributed.destroy_process_group()

"""The memory of a method beside the loaded network, as the operating system reports it.

Each is measured in its own process: memory that an earlier method has freed would hide what the next one takes.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from excite.experiments.speed.timing import reason_of

if TYPE_CHECKING:
    from collections.abc import Callable

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RUNS = 2  # the second one shows what the first one keeps
MIB = 2**20


def in_own_process(work: Callable[..., dict[str, Any]], *arguments: object) -> dict[str, Any]:
    """The result of a call in a fresh process, or a ``note`` with the reason why there is none."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(work, *arguments).result()
        except BrokenProcessPool:
            return {"note": "its process was killed, most likely because memory ran out"}
        except Exception as error:  # noqa: BLE001 - a method that fails is a row with its reason
            return {"note": reason_of(error)}


def peak_of(warm_up: Callable[[], object], run: Callable[[], object], device: torch.device) -> float:
    """The peak MiB of a call, beyond those after a plain forward pass (``warm_up``).

    The call is made twice, so that what it keeps counts. On a GPU it is the memory of tensors there.
    """
    warm_up()
    gc.collect()
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device) / MIB
    else:
        _give_back()
        before = memory_now()
        if STATUS.exists():
            RESET.write_text("5", encoding="ascii")  # resets the kernel's high-water mark
    for _ in range(RUNS):
        run()
    return (torch.cuda.max_memory_allocated(device) / MIB if on_gpu else _highest()) - before


def memory_now() -> float:
    """The resident MiB of this process; without /proc, its peak."""
    return _status("VmRSS") if STATUS.exists() else _highest()


def _highest() -> float:
    if STATUS.exists():
        return _status("VmHWM")
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / MIB if sys.platform == "darwin" else most / 1024  # macOS counts bytes


def _status(field: str) -> float:
    """A field of /proc/self/status, in MiB."""
    (line,) = (line for line in STATUS.read_text(encoding="ascii").splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) / 1024


def _give_back() -> None:
    """Return free memory to the system, so that the call cannot reuse what the forward pass has freed."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, others return memory at once
    if trim is not None:
        trim(0)

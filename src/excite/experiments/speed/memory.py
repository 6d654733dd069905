"""The memory of a method beside the loaded network, as the operating system reports it.

Each is measured in its own process: memory that an earlier method has freed would hide what the next one takes.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from excite.experiments.speed.candidates import PEER_NAMES, candidate, peer_candidate, plain_forward
from excite.experiments.speed.networks import open_network, open_twin
from excite.experiments.speed.timing import C_MWP, FORWARD, Case, reason_of
from excite.propagation import mwp

if TYPE_CHECKING:
    from collections.abc import Callable

    from excite.experiments.speed.candidates import SpeedTask
    from excite.experiments.speed.networks import TimedNetwork
    from excite.experiments.speed.timing import Candidate


STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RUNS = 2  # the second one shows what the first one keeps
EARLY = 100  # images after which all caches are filled
MIB = 2**20


def in_own_process(work: Callable[..., dict[str, Any]], *arguments: object) -> dict[str, Any]:
    """The result of a call in a fresh process, or a ``note`` with the reason why there is none.

    Example:
        >>> in_own_process(dict, [("peak_mb", 1.0)])
        {'peak_mb': 1.0}
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(work, *arguments).result()
        except BrokenProcessPool:
            return {"note": "its process was killed, most likely because memory ran out"}
        except Exception as error:  # noqa: BLE001 - whatever a peer fails with is a row with its reason
            return {"note": reason_of(error)}


def peak_of(warm_up: Callable[[], object], run: Callable[[], object], device: torch.device) -> float:
    """The peak MiB of a call, beyond those after a plain forward pass (``warm_up``).

    The call is made twice, so that what it keeps counts. On a GPU it is the memory of tensors there.
    """
    warm_up()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        allocated = torch.cuda.memory_allocated(device)
        _repeat(run)
        return (torch.cuda.max_memory_allocated(device) - allocated) / MIB
    _give_back()
    before = memory_now()
    if STATUS.exists():
        RESET.write_text("5", encoding="ascii")  # resets the kernel's high-water mark
    _repeat(run)
    return _highest() - before


def memory_now() -> float:
    """The resident MiB of this process; without /proc, its peak."""
    return _status("VmRSS") if STATUS.exists() else _highest()


def endurance(step: Callable[[int], object], pictures: int) -> tuple[float, float]:
    """The resident MiB after the first hundred images, and after all.

    Example:
        >>> early, end = endurance(lambda number: None, 3)
        >>> 0 < early <= end
        True
    """
    early = 0.0
    for number in range(pictures):
        step(number)
        if number + 1 == min(EARLY, pictures):
            early = memory_now()
    return early, memory_now()


def _repeat(run: Callable[[], object]) -> None:
    for _ in range(RUNS):
        run()


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


def measure_memory(task: SpeedTask, threads: int, device: str) -> dict[str, Any]:
    """The result of a task of kind "memory" or "endurance" in this process; peers run on their own network.

    Example:
        >>> from excite.experiments.speed.candidates import SpeedTask
        >>> measure_memory(SpeedTask("memory", "efficientnet-lite0", method="c-mwp"), 1, "cpu")  # doctest: +SKIP
        {'peak_mb': 47.2}
    """
    warnings.simplefilter("ignore")  # peers warn of changing a network; it is their own copy
    torch.set_num_threads(threads)
    network = open_network(task.model, device)
    network = open_twin(network) if task.method in PEER_NAMES else network
    if task.kind == "endurance":
        return _endured(network, task.pictures)
    forward = plain_forward(network, task.batch)
    run = forward if task.method == FORWARD else _candidate(task, network).prepare()
    return {"peak_mb": round(peak_of(forward, run, network.device), 1)}


def measured_case(task: SpeedTask, network: TimedNetwork) -> Case:
    """The case whose memory is measured."""
    if task.method == FORWARD:
        return Case(network.name, "", FORWARD, batch=task.batch)
    return _candidate(task, network).case


def _candidate(task: SpeedTask, network: TimedNetwork) -> Candidate:
    (concepts,) = task.concepts
    if task.method in PEER_NAMES:
        return peer_candidate(PEER_NAMES[task.method], network, concepts)
    return candidate(network, task.method or C_MWP, concepts=concepts, pictures=task.batch)


def _endured(network: TimedNetwork, pictures: int) -> dict[str, Any]:
    """Memory over the maps of many images, all a little different."""
    picture, layer = network.picture, network.layer

    def step(number: int) -> None:
        mwp(network.module, picture.roll(number, dims=-1), 0, layer=layer, contrastive=True)

    early, end = endurance(step, pictures)
    return {"note": f"{pictures} pictures: {early:.1f} MB after {min(EARLY, pictures)}, {end:.1f} MB in the end"}

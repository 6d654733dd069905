"""How much memory a method needs beside the loaded network, seen by the operating system.

Each is measured in a process of its own: memory that an earlier method has had and given back would hide what the next
one takes.
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

from excite.experiments.speed.contenders import PEER_NAMES, contender, peer_contender, plain_forward
from excite.experiments.speed.networks import open_subject, open_twin
from excite.experiments.speed.timing import C_MWP, FORWARD, Case, reason_of
from excite.propagation import mwp

if TYPE_CHECKING:
    from collections.abc import Callable

    from excite.experiments.speed.contenders import Task
    from excite.experiments.speed.networks import Subject
    from excite.experiments.speed.timing import Contender


STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RUNS = 2  # the second one shows what the first one has kept
EARLY = 100  # images after which everything that is kept for good is there
MIB = 2**20


def in_own_process(work: Callable[..., dict[str, Any]], *arguments: object) -> dict[str, Any]:
    """Do it in a fresh process and return what it answers, or else a ``note`` that says why not.

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
    """How many MiB a call needs at most, beyond what is there after a plain forward pass.

    Args:
        warm_up: the plain forward pass.
        run: the call; it is made twice, so that what it keeps counts.
        device: where it computes. On a GPU it is the tensors' memory there.
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
        RESET.write_text("5", encoding="ascii")  # the kernel's high-water mark starts anew
    _repeat(run)
    return _highest() - before


def memory_now() -> float:
    """MiB of this process in memory now; where the kernel does not tell, the most it ever had."""
    return _status("VmRSS") if STATUS.exists() else _highest()


def endurance(step: Callable[[int], object], pictures: int) -> tuple[float, float]:
    """Picture after image: how many MiB there are in memory after the first hundred, and in the end.

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
    """A line of what Linux says about this process, in MiB."""
    (line,) = (line for line in STATUS.read_text(encoding="ascii").splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) / 1024


def _give_back() -> None:
    """Let the C library return what is free, so that nobody works in memory that the forward pass has left behind."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, others return memory at once
    if trim is not None:
        trim(0)


# What is done in a process of its own, where memory is watched: load one network and run one method.


def measure_memory(task: Task, threads: int, device: str) -> dict[str, Any]:
    """Do a task of kind "memory" or "endurance" in this process; what is asked for peers is asked of their network.

    Example:
        >>> from excite.experiments.speed.contenders import Task
        >>> measure_memory(Task("memory", "efficientnet-lite0", method="c-mwp"), 1, "cpu")  # doctest: +SKIP
        {'peak_mb': 47.2}
    """
    warnings.simplefilter("ignore")  # peers warn of what they do to a network; here it is their own copy
    torch.set_num_threads(threads)
    subject = open_subject(task.model, device)
    subject = open_twin(subject) if task.method in PEER_NAMES else subject
    if task.kind == "endurance":
        return _endured(subject, task.pictures)
    forward = plain_forward(subject, task.batch)
    run = forward if task.method == FORWARD else _entered(task, subject).prepare()
    return {"peak_mb": round(peak_of(forward, run, subject.device), 1)}


def case_watched(task: Task, subject: Subject) -> Case:
    """Which case it is whose memory is watched.

    Example:
        >>> from excite.experiments.speed.contenders import Task
        >>> case_watched(Task("memory", "vgg16", method="forward"), subject).method  # doctest: +SKIP
        'forward'
    """
    if task.method == FORWARD:
        return Case(subject.name, "", FORWARD, batch=task.batch)
    return _entered(task, subject).case


def _entered(task: Task, subject: Subject) -> Contender:
    (concepts,) = task.concepts
    if task.method in PEER_NAMES:
        return peer_contender(PEER_NAMES[task.method], subject, concepts)
    return contender(subject, task.method or C_MWP, concepts=concepts, pictures=task.batch)


def _endured(subject: Subject, pictures: int) -> dict[str, Any]:
    """Map after map, of images that are all a little different."""
    picture, layer = subject.picture, subject.layer

    def step(number: int) -> None:
        mwp(subject.module, picture.roll(number, dims=-1), 0, layer=layer, contrastive=True)

    early, end = endurance(step, pictures)
    return {"note": f"{pictures} pictures: {early:.1f} MB after {min(EARLY, pictures)}, {end:.1f} MB in the end"}

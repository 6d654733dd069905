"""What is done in a process of its own, where memory is watched: load one network and run one method."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

from excite.experiments.speed.contenders import contender, plain_forward
from excite.experiments.speed.memory import EARLY, endurance, peak_of
from excite.experiments.speed.networks import open_subject, open_twin
from excite.experiments.speed.speed_peers import PEER_NAMES, peer_contender
from excite.experiments.speed.timing import C_MWP, FORWARD, Case
from excite.propagation import mwp

if TYPE_CHECKING:
    from excite.experiments.speed.networks import Subject
    from excite.experiments.speed.speed_plan import Task
    from excite.experiments.speed.speed_rounds import Contender

__all__ = ["case_watched", "watch"]


def watch(task: Task, threads: int, device: str) -> dict[str, Any]:
    """Do a task of kind "memory" or "endurance" in this process; what is asked for peers is asked of their network.

    Example:
        >>> from excite.experiments.speed.speed_plan import Task
        >>> watch(Task("memory", "efficientnet-lite0", method="c-mwp"), 1, "cpu")  # doctest: +SKIP
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
        >>> from excite.experiments.speed.speed_plan import Task
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
    """Map after map, of pictures that are all a little different."""
    picture, layer = subject.picture, subject.layer

    def step(number: int) -> None:
        mwp(subject.module, picture.roll(number, dims=-1), 0, layer=layer, contrastive=True)

    early, end = endurance(step, pictures)
    return {"note": f"{pictures} pictures: {early:.1f} MB after {min(EARLY, pictures)}, {end:.1f} MB in the end"}

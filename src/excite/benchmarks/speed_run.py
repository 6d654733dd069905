"""The work of the speed benchmark: task by task, each written down when it is finished."""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from excite import exporting, propagation
from excite.benchmarks.speed import C_MWP, COMPILED, FORWARD, GRADIENT, MWP, Case
from excite.benchmarks.speed_contenders import contender, plain_forward
from excite.benchmarks.speed_layers import figure_layers
from excite.benchmarks.speed_limits import above_layers
from excite.benchmarks.speed_memory import in_own_process
from excite.benchmarks.speed_networks import open_subject, open_twin
from excite.benchmarks.speed_peers import PEER_NAMES, PEERS, TORCHRAY, peer_contender
from excite.benchmarks.speed_plan import MOST_MAPS
from excite.benchmarks.speed_rounds import Rounds, Stopwatch
from excite.benchmarks.speed_rows import failed_row, group_rows, row
from excite.benchmarks.speed_watch import case_watched, watch
from excite.models import Choice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from excite.benchmarks.speed_networks import Subject
    from excite.benchmarks.speed_plan import Task
    from excite.benchmarks.speed_rounds import Contender
    from excite.benchmarks.speed_rows import Row
    from excite.ledger import Entry, Ledger

__all__ = ["REQUIRED", "SpeedBench"]

REQUIRED = ("rows",)
OWN_FILES = ("speed", "speed_rounds", "speed_networks", "speed_contenders", "speed_peers", "speed_memory")


@dataclass
class SpeedBench:
    """Measures tasks on this machine.

    Attributes:
        seconds: how long the rounds of one group may go on; there are at least three in any case.
        threads: how many torch computes with.
        device: where the networks run.
    """

    seconds: float = 20.0
    threads: int = 1
    device: str = "cpu"
    _basis: str = field(default="", init=False)
    _open: dict[str, Subject] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._basis = _basis()

    @property
    def facts(self) -> dict[str, object]:
        """What all times depend on."""
        name = torch.cuda.get_device_name(self.device) if self.device.startswith("cuda") else self.device
        return {"torch": version("torch"), "device": name, "threads": self.threads}

    def entries(self, tasks: Iterable[Task], ledger: Ledger, *, fresh: bool = False) -> Iterator[Entry]:
        """Each task's rows; those of an earlier run with the same engine on as many threads are not measured again."""
        known = {} if fresh else ledger.read()
        for task in tasks:
            key = self.key(task)
            entry = known.get(key)
            if entry is None:
                entry = {"key": key, "rows": self(task)}
                ledger.add(entry)
            yield entry

    def key(self, task: Task) -> str:
        """Changes with the task, the network's files, the engine, torch, the threads and the device."""
        facts = {**task.facts, "files": Choice(task.model).key()["files"], "basis": self._basis}
        facts |= {"threads": self.threads, "device": self.device, "seconds": self.seconds}
        return json.dumps(facts, sort_keys=True)

    def __call__(self, task: Task) -> list[Row]:
        """Measure one task."""
        torch.set_num_threads(self.threads)
        subject = self._subject(task.model)
        if task.kind in {"memory", "endurance"}:
            subject = self._twin(subject) if task.method in PEER_NAMES else subject
            answer = in_own_process(watch, task, self.threads, self.device)
            return [row(case_watched(task, subject), subject, task.kind, **answer)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # peers warn of what they do to a network; here it is their own copy
            return self._groups[task.kind](task, subject)

    @property
    def _groups(self) -> dict[str, Callable[[Task, Subject], list[Row]]]:
        return {
            "pictures": self._pictures,
            "compiled": self._compiled,
            "concepts": self._concepts,
            "layers": self._layers,
            "peers": self._peers,
        }

    def _pictures(self, task: Task, subject: Subject) -> list[Row]:
        """The headline methods at the network's own layer."""
        plain = (GRADIENT, MWP) if task.batch == 1 else (GRADIENT,)  # a batch costs MWP what it costs c-MWP
        entered = [contender(subject, method, pictures=task.batch) for method in plain]
        entered += [contender(subject, C_MWP, concepts=number, pictures=task.batch) for number in task.concepts]
        rows = self._raced(subject, entered, task)
        why = f"skipped: more than {MOST_MAPS} maps at once (concepts x pictures)"
        cases = [Case(subject.name, subject.layer, C_MWP, number, task.batch) for number in task.skipped]
        return rows + [failed_row(case, subject, task.kind, why) for case in cases]

    def _compiled(self, task: Task, subject: Subject) -> list[Row]:
        """The same maps from a compiled graph: one picture, a few concepts; without onnxruntime rows that say so."""
        ways = (C_MWP, COMPILED)
        entered = [contender(subject, way, concepts=number) for number in task.concepts for way in ways]
        return [each for each in self._raced(subject, entered, task) if each["method"] == COMPILED]

    def _concepts(self, task: Task, subject: Subject) -> list[Row]:
        """Many concepts on each picture; one alone runs with them, to know what each further one costs."""
        entered = [contender(subject, C_MWP, concepts=number, pictures=task.batch) for number in (1, *task.concepts)]
        return [each for each in self._raced(subject, entered, task) if each["concepts"] in task.concepts]

    def _layers(self, task: Task, subject: Subject) -> list[Row]:
        """The paper's figure: maps that end at each layer; the network's own layer is in the headline already."""
        layers = [layer for layer in figure_layers(subject) if layer != subject.layer]
        entered = [contender(subject, method, layer=layer) for layer in layers for method in (MWP, C_MWP)]
        return [each for each in self._raced(subject, entered, task) if each["method"] != FORWARD]

    def _peers(self, task: Task, subject: Subject) -> list[Row]:
        """Other packages on a network they can run, and ours on that same network in the same rounds.

        Several concepts are asked only of the nearest peer: five calls of the others take five times as long as one.
        """
        twin = self._twin(subject)
        entered = [contender(twin, method) for method in (GRADIENT, MWP)]
        ways = (C_MWP, COMPILED) if task.compiled else (C_MWP,)
        entered += [contender(twin, way, concepts=number) for number in task.concepts for way in ways]
        entered += [peer_contender(peer, twin) for peer in PEERS]
        entered += [peer_contender(TORCHRAY, twin, number) for number in task.concepts if number > 1]
        return self._raced(twin, entered, task)

    def _raced(self, subject: Subject, entered: Sequence[Contender], task: Task) -> list[Row]:
        stopwatch = Stopwatch.on(subject.device)
        rounds = Rounds(plain_forward(subject, task.batch), stopwatch)
        rounds.run(entered, self.seconds)
        rows = group_rows(rounds, subject, task.kind, task.batch)
        layers = dict.fromkeys(each["layer"] for each in rows if each["method"] in {MWP, C_MWP})
        above = above_layers(subject.module, subject.batch(1), list(layers), stopwatch)
        for each in rows:
            if each["method"] in {MWP, C_MWP}:
                share = above[each["layer"]]
                each |= {"limit": round(share.limit, 4), "above": round(share.arithmetic, 4)}
                each["above_time"] = round(share.time, 4)
        return rows

    def _subject(self, model: str) -> Subject:
        """The network, kept until another one is asked for."""
        if model not in self._open:
            self._open.clear()
            self._open[model] = open_subject(model, self.device)
        return self._open[model]

    def _twin(self, subject: Subject) -> Subject:
        """The network for peers, kept as long."""
        twin = f"twin of {subject.name}"
        if twin not in self._open:
            self._open[twin] = open_twin(subject)
        return self._open[twin]


def _basis() -> str:
    """A digest of torch and of the code that a time depends on."""
    own = Path(__file__).parent
    parts = [Path(str(part.__file__)).parent for part in (propagation, exporting)]
    code = [*(file for part in parts for file in part.rglob("*.py")), *(own / f"{name}.py" for name in OWN_FILES)]
    content = version("torch").encode() + b"".join(path.read_bytes() for path in sorted(code))
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()[:12]

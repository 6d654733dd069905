"""The speed benchmark: the rows of each task, recorded when it is finished."""

from __future__ import annotations

import hashlib
import json
from contextlib import closing
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from excite import export as exporting
from excite import propagation
from excite.experiments.speed.memory import in_own_process, peak_of
from excite.experiments.speed.networks import above_layers, figure_layers, open_network
from excite.experiments.speed.plan import MOST_MAPS, candidate, plain_forward
from excite.experiments.speed.report import group_rows, row
from excite.experiments.speed.timing import C_MWP, COMPILED, FORWARD, GRADIENT, MWP, Case, Rounds, Stopwatch
from excite.models import Choice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from excite.experiments.speed.networks import TimedNetwork
    from excite.experiments.speed.plan import SpeedTask
    from excite.experiments.speed.report import TableRow
    from excite.experiments.speed.timing import Candidate
    from excite.jobs import Entry, ResultStore

REQUIRED = ("rows",)
OWN_FILES = ("timing", "networks", "plan", "memory", "run")


@dataclass
class SpeedBench:
    """Measures tasks on this machine.

    Attributes:
        seconds: for the rounds of one group, of which there are at least three.
        threads: of torch.
        device: of the networks.
    """

    seconds: float = 20.0
    threads: int = 1
    device: str = "cpu"
    _basis: str = field(default="", init=False)
    _open: dict[str, TimedNetwork] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._basis = _basis()

    @property
    def facts(self) -> dict[str, object]:
        """The facts on which all times depend."""
        name = torch.cuda.get_device_name(self.device) if self.device.startswith("cuda") else self.device
        return {"torch": version("torch"), "device": name, "threads": self.threads}

    def entries(self, tasks: Iterable[SpeedTask], store: ResultStore, *, fresh: bool = False) -> Iterator[Entry]:
        """The rows of each task; those of an earlier run with the same key are not measured again."""
        known = {} if fresh else store.read()
        with closing(store):
            for task in tasks:
                key = self.key(task)
                entry = known.get(key)
                if entry is None:
                    entry = {"key": key, "rows": self(task)}
                    store.add(entry)
                yield entry

    def key(self, task: SpeedTask) -> str:
        """The task, the network's files, the code, torch, the threads and the device."""
        facts = {**task.facts, "files": Choice(task.model).key()["files"], "basis": self._basis}
        facts |= {"threads": self.threads, "device": self.device, "seconds": self.seconds}
        return json.dumps(facts, sort_keys=True)

    def __call__(self, task: SpeedTask) -> list[TableRow]:
        """The rows of one task."""
        torch.set_num_threads(self.threads)
        network = self._network(task.model)
        if task.kind == "memory":
            answer = in_own_process(measure_memory, task, self.threads, self.device)
            layer = {FORWARD: "", GRADIENT: "input"}.get(task.method, network.layer)
            case = Case(network.name, layer, task.method, task.concepts[0], task.batch)
            return [row(case, network, task.kind, **answer)]
        rows = timed_rows(network, candidates(task, network), task.kind, self.seconds, task.batch)
        why = f"skipped: more than {MOST_MAPS} maps at once (concepts x images)"
        skipped = [Case(network.name, network.layer, C_MWP, number, task.batch) for number in task.skipped]
        rows = [each for each in rows if _is_asked(each, task)]
        return rows + [row(case, network, task.kind, note=why) for case in skipped]

    def _network(self, model: str) -> TimedNetwork:
        """The network, kept until another one is opened."""
        if model not in self._open:
            self._open = {model: open_network(model, self.device)}
        return self._open[model]


def candidates(task: SpeedTask, network: TimedNetwork) -> list[Candidate]:
    """The calls that take turns in a task.

    With the headline ("pictures") MWP is timed for one image only: a batch costs it what it costs c-MWP. With many
    concepts one alone is timed as well, for the cost of each further one. The paper's figure ("layers") has maps that
    end at each layer; the default layer is in the headline.
    """
    if task.kind == "layers":
        layers = [layer for layer in figure_layers(network) if layer != network.layer]
        return [candidate(network, method, layer=layer) for layer in layers for method in (MWP, C_MWP)]
    if task.kind == "compiled":
        return [candidate(network, way, concepts=number) for number in task.concepts for way in (C_MWP, COMPILED)]
    plain = () if task.kind == "concepts" else (GRADIENT, MWP) if task.batch == 1 else (GRADIENT,)
    counted = (1, *task.concepts) if task.kind == "concepts" else task.concepts
    return [candidate(network, method, pictures=task.batch) for method in plain] + [
        candidate(network, C_MWP, concepts=number, pictures=task.batch) for number in counted
    ]


def _is_asked(row: TableRow, task: SpeedTask) -> bool:
    """Whether a row is one of the task's own and not one that other groups have, timed only to compare with."""
    return bool(
        {
            "pictures": True,
            "compiled": row["method"] == COMPILED,
            "concepts": row["concepts"] in task.concepts,
            "layers": row["method"] != FORWARD,
        }[task.kind]
    )


def timed_rows(
    network: TimedNetwork, candidates: Sequence[Candidate], group: str, seconds: float, batch: int = 1
) -> list[TableRow]:
    """The rows of calls that take turns for so many seconds, those of maps with their arithmetic limit."""
    stopwatch = Stopwatch.on(network.device)
    rounds = Rounds(plain_forward(network, batch), stopwatch)
    rounds.run(candidates, seconds)
    rows = group_rows(rounds, network, group, batch)
    maps = [each for each in rows if each["method"] in {MWP, C_MWP}]
    above = above_layers(network.module, network.batch(1), list({each["layer"]: None for each in maps}), stopwatch)
    for each in maps:
        share = above[each["layer"]]
        each |= {"limit": round(share.limit, 4), "above": round(share.arithmetic, 4)}
        each["above_time"] = round(share.time, 4)
    return rows


def measure_memory(task: SpeedTask, threads: int, device: str) -> dict[str, Any]:
    """The result of a task of kind "memory" in this process."""
    torch.set_num_threads(threads)
    network = open_network(task.model, device)
    forward = run = plain_forward(network, task.batch)
    if task.method != FORWARD:
        run = candidate(network, task.method, concepts=task.concepts[0], pictures=task.batch).prepare()
    return {"peak_mb": round(peak_of(forward, run, network.device), 1)}


def _basis() -> str:
    """A digest of torch's version and of the code on which times depend."""
    own = Path(__file__).parent
    parts = [Path(str(part.__file__)).parent for part in (propagation, exporting)]
    code = [*(file for part in parts for file in part.rglob("*.py")), *(own / f"{name}.py" for name in OWN_FILES)]
    content = version("torch").encode() + b"".join(path.read_bytes() for path in sorted(code))
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()[:12]

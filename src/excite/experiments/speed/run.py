"""The speed benchmark: the rows of each task, recorded when it is finished."""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from excite import export as exporting
from excite import propagation
from excite.experiments.speed.candidates import (
    MOST_MAPS,
    PEER_NAMES,
    PEERS,
    TORCHRAY,
    candidate,
    peer_candidate,
    plain_forward,
)
from excite.experiments.speed.memory import in_own_process, measure_memory, measured_case
from excite.experiments.speed.networks import above_layers, figure_layers, open_network, open_twin
from excite.experiments.speed.report import group_rows, row
from excite.experiments.speed.timing import C_MWP, COMPILED, FORWARD, GRADIENT, MWP, Case, Rounds, Stopwatch
from excite.models import Choice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from excite.experiments.speed.candidates import SpeedTask
    from excite.experiments.speed.networks import TimedNetwork
    from excite.experiments.speed.report import TableRow
    from excite.experiments.speed.timing import Candidate
    from excite.jobs import Entry, JsonLinesStore

REQUIRED = ("rows",)
OWN_FILES = ("timing", "networks", "candidates", "memory")


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

    def entries(self, tasks: Iterable[SpeedTask], store: JsonLinesStore, *, fresh: bool = False) -> Iterator[Entry]:
        """The rows of each task; those of an earlier run with the same key are not measured again."""
        known = {} if fresh else store.read()
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
        if task.kind in {"memory", "endurance"}:
            network = self._twin(network) if task.method in PEER_NAMES else network
            answer = in_own_process(measure_memory, task, self.threads, self.device)
            return [row(measured_case(task, network), network, task.kind, **answer)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # peers warn of changing a network; it is their own copy
            return self._groups[task.kind](task, network)

    @property
    def _groups(self) -> dict[str, Callable[[SpeedTask, TimedNetwork], list[TableRow]]]:
        return {
            "pictures": self._pictures,
            "compiled": self._compiled,
            "concepts": self._concepts,
            "layers": self._layers,
            "peers": self._peers,
        }

    def _pictures(self, task: SpeedTask, network: TimedNetwork) -> list[TableRow]:
        """The headline methods at the default layer."""
        plain = (GRADIENT, MWP) if task.batch == 1 else (GRADIENT,)  # a batch costs MWP what it costs c-MWP
        candidates = [candidate(network, method, pictures=task.batch) for method in plain]
        candidates += [candidate(network, C_MWP, concepts=number, pictures=task.batch) for number in task.concepts]
        rows = self._timed(network, candidates, task)
        why = f"skipped: more than {MOST_MAPS} maps at once (concepts x images)"
        cases = [Case(network.name, network.layer, C_MWP, number, task.batch) for number in task.skipped]
        return rows + [row(case, network, task.kind, note=why) for case in cases]

    def _compiled(self, task: SpeedTask, network: TimedNetwork) -> list[TableRow]:
        """The same maps from a compiled graph: one image, a few concepts."""
        ways = (C_MWP, COMPILED)
        candidates = [candidate(network, way, concepts=number) for number in task.concepts for way in ways]
        return [each for each in self._timed(network, candidates, task) if each["method"] == COMPILED]

    def _concepts(self, task: SpeedTask, network: TimedNetwork) -> list[TableRow]:
        """Many concepts on each image, and one alone for the cost of each further one."""
        candidates = [candidate(network, C_MWP, concepts=number, pictures=task.batch) for number in (1, *task.concepts)]
        return [each for each in self._timed(network, candidates, task) if each["concepts"] in task.concepts]

    def _layers(self, task: SpeedTask, network: TimedNetwork) -> list[TableRow]:
        """The paper's figure: maps that end at each layer; the default layer is in the headline."""
        layers = [layer for layer in figure_layers(network) if layer != network.layer]
        candidates = [candidate(network, method, layer=layer) for layer in layers for method in (MWP, C_MWP)]
        return [each for each in self._timed(network, candidates, task) if each["method"] != FORWARD]

    def _peers(self, task: SpeedTask, network: TimedNetwork) -> list[TableRow]:
        """Other packages on a network they can run, and ours on that same network in the same rounds.

        Several concepts are timed for the nearest peer only: the others take a call for each.
        """
        twin = self._twin(network)
        candidates = [candidate(twin, method) for method in (GRADIENT, MWP)]
        ways = (C_MWP, COMPILED) if task.compiled else (C_MWP,)
        candidates += [candidate(twin, way, concepts=number) for number in task.concepts for way in ways]
        candidates += [peer_candidate(peer, twin) for peer in PEERS]
        candidates += [peer_candidate(TORCHRAY, twin, number) for number in task.concepts if number > 1]
        return self._timed(twin, candidates, task)

    def _timed(self, network: TimedNetwork, candidates: Sequence[Candidate], task: SpeedTask) -> list[TableRow]:
        stopwatch = Stopwatch.on(network.device)
        rounds = Rounds(plain_forward(network, task.batch), stopwatch)
        rounds.run(candidates, self.seconds)
        rows = group_rows(rounds, network, task.kind, task.batch)
        layers = dict.fromkeys(each["layer"] for each in rows if each["method"] in {MWP, C_MWP})
        above = above_layers(network.module, network.batch(1), list(layers), stopwatch)
        for each in rows:
            if each["method"] in {MWP, C_MWP}:
                share = above[each["layer"]]
                each |= {"limit": round(share.limit, 4), "above": round(share.arithmetic, 4)}
                each["above_time"] = round(share.time, 4)
        return rows

    def _network(self, model: str) -> TimedNetwork:
        """The network, kept until another one is opened."""
        if model not in self._open:
            self._open.clear()
            self._open[model] = open_network(model, self.device)
        return self._open[model]

    def _twin(self, network: TimedNetwork) -> TimedNetwork:
        """The network for peers, kept likewise."""
        twin = f"twin of {network.name}"
        if twin not in self._open:
            self._open[twin] = open_twin(network)
        return self._open[twin]


def _basis() -> str:
    """A digest of torch's version and of the code on which times depend."""
    own = Path(__file__).parent
    parts = [Path(str(part.__file__)).parent for part in (propagation, exporting)]
    code = [*(file for part in parts for file in part.rglob("*.py")), *(own / f"{name}.py" for name in OWN_FILES)]
    content = version("torch").encode() + b"".join(path.read_bytes() for path in sorted(code))
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()[:12]

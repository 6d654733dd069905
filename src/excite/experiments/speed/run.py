"""The speed benchmark: the rows of each task, recorded when it is finished.

The memory of a method beside the loaded network is measured in its own process, as the operating system reports it:
memory that an earlier method has freed would hide what the next one takes.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import json
import multiprocessing
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from excite.experiments.speed.networks import above_layers, figure_layers, open_network, open_twin
from excite.experiments.speed.report import group_rows, row
from excite.experiments.speed.timing import C_MWP, COMPILED, FORWARD, GRADIENT, MWP, Case, Rounds, Stopwatch, reason_of
from excite.models import Choice
from excite.propagation import mwp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from excite.experiments.speed.candidates import SpeedTask
    from excite.experiments.speed.networks import TimedNetwork
    from excite.experiments.speed.report import TableRow
    from excite.experiments.speed.timing import Candidate
    from excite.jobs import Entry, ResultStore

REQUIRED = ("rows",)
OWN_FILES = ("timing", "networks", "candidates", "run")
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RUNS = 2  # the second one shows what the first one keeps
EARLY = 100  # images after which all caches are filled
MIB = 2**20


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


def in_own_process(work: Callable[..., dict[str, Any]], *arguments: object) -> dict[str, Any]:
    """The result of a call in a fresh process, or a ``note`` with the reason why there is none."""
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
    """The resident MiB after the first hundred images, and after all."""
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
    """The result of a task of kind "memory" or "endurance" in this process; peers run on their own network."""
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

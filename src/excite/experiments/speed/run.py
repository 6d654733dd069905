"""The speed benchmark: its plan, the calls (candidates) that each task times, and the rows of each task."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from excite import export as exporting
from excite import propagation
from excite.errors import DataError
from excite.experiments.speed import timing
from excite.experiments.speed.report import TableRow, group_rows, row
from excite.experiments.speed.timing import (
    C_MWP,
    COMPILED,
    FORWARD,
    GRADIENT,
    MWP,
    Candidate,
    Case,
    TimedNetwork,
    open_network,
)
from excite.export.compiled import Compiled
from excite.io.cache import fingerprint
from excite.jobs import Entry, ResultStore
from excite.models import Choice, wrap
from excite.propagation import ExcitationPass, TokenPass, mwp, prior
from excite.propagation.taps import main_output

FEW = 5  # concepts timed together with the headline
MOST_MAPS = 80  # concepts x images at once, of several images: more take minutes and gigabytes
MOST_PICTURES = 8  # at once, for memory, which is proportional to the batch
SECONDS, QUICK_SECONDS = 20.0, 2.0  # for the rounds of one group
QUICK: dict[str, Any] = {"batches": (1,), "concepts": (1, 5), "all_layers": False, "memory": False}
REQUIRED = ("rows",)


@dataclass(frozen=True)
class SpeedTask:
    """A group of measurements, with one record.

    Kinds: "pictures": the headline methods on a batch; "compiled": maps by onnxruntime; "concepts": many on one image;
    "layers": the paper's figure; "memory": of one method.
    """

    kind: Literal["pictures", "compiled", "concepts", "layers", "memory"]
    model: str  # for `excite.load`
    batch: int = 1  # number of images at once
    concepts: tuple[int, ...] = (1,)  # the numbers of concepts
    skipped: tuple[int, ...] = ()  # those that are too many for this batch
    method: str = ""  # whose memory is measured


@dataclass(frozen=True)
class Plan:
    """The measurements of a run; see ``excite bench speed --help``."""

    models: tuple[str, ...] = timing.NETWORKS
    batches: tuple[int, ...] = (1, 8, 32)
    concepts: tuple[int, ...] = (1, 5, 20, 80)
    all_layers: bool = True
    memory: bool = True
    compiled: bool = False

    def tasks(self) -> Iterator[SpeedTask]:
        """The tasks, network by network, so that each is loaded once."""
        for model in self.models:
            for batch in self.batches:
                fit = [number for number in self.concepts if batch == 1 or number * batch <= MOST_MAPS]
                few, many = (tuple(n for n in fit if (n <= FEW) is small) for small in (True, False))
                yield SpeedTask("pictures", model, batch, few, tuple(n for n in self.concepts if n not in fit))
                if many:
                    yield SpeedTask("concepts", model, batch, many)
            if self.compiled:
                yield SpeedTask("compiled", model, concepts=tuple(number for number in self.concepts if number <= FEW))
            if self.all_layers:
                yield SpeedTask("layers", model)
            for batch in self.batches if self.memory else ():
                if batch <= MOST_PICTURES:
                    for method in (FORWARD, GRADIENT, MWP) if batch == 1 else (GRADIENT,):
                        yield SpeedTask("memory", model, batch, method=method)
                    for number in self.concepts if batch == 1 else self.concepts[:1]:
                        yield SpeedTask("memory", model, batch, (number,), method=C_MWP)


def numbers(text: str, option: str) -> tuple[int, ...]:
    """The numbers of a comma-separated list, each once and in order."""
    words = text.split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise DataError(f"{option} {text}: give numbers from 1 up with commas between, such as 1,8")
    return tuple(sorted({int(word) for word in words}))


# The calls that are timed.


def plain_forward(network: TimedNetwork, pictures: int) -> Callable[[], object]:
    """The forward pass for classification, without gradients."""
    batch = network.batch(pictures)
    return lambda: network.output(batch)


def candidate(
    network: TimedNetwork, method: str, *, layer: str = "", concepts: int = 1, pictures: int = 1
) -> Candidate:
    """The input gradient, MWP, c-MWP or the compiled c-MWP on a network."""
    layer = "input" if method == GRADIENT else layer or network.layer
    case = Case(network.name, layer, method, concepts, pictures)

    def prepare() -> Callable[[], object]:
        batch = network.batch(pictures)
        output = network.output(batch)
        signals = torch.stack([prior(output, {unit: 1.0}) for unit in top_classes(output, concepts)])
        if method == GRADIENT:
            return lambda: [_gradient(network, batch, signal) for signal in signals]
        if method == COMPILED:  # the export is cached and not timed
            classifier, (height, width) = wrap(network.module, name=network.name), batch.shape[2:]
            compiled = Compiled(classifier, layer=layer, size=(height, width), threads=torch.get_num_threads())
            return lambda: compiled.maps(batch, signals)
        asked = signals[0] if concepts == 1 else signals
        names = list(network.stream)
        if layer in names:  # as `excite.attend` has it, where the neurons are tokens
            stream, dual = {name: network.stream[name] for name in names[names.index(layer) :]}, -(method == C_MWP)
            return lambda: TokenPass(network.module, batch, stream).down(asked, dual=dual, layers=[layer])
        if concepts > 1:  # as `excite.attend` has it
            contrast = -float(method == C_MWP)
            return lambda: ExcitationPass(network.module, batch, [layer]).sums(asked, layers=[layer], dual=contrast)
        return lambda: mwp(network.module, batch, asked, layer=layer, contrastive=method == C_MWP)

    return Candidate(case, prepare)


def top_classes(output: Tensor, concepts: int) -> list[int]:
    """The classes with the largest mean output, over all images and positions."""
    seen = output.transpose(0, 1).flatten(1).mean(dim=1)
    chosen: list[int] = seen.topk(min(concepts, len(seen))).indices.tolist()
    return [chosen[k % len(chosen)] for k in range(concepts)]  # a small network has fewer classes


def _gradient(network: TimedNetwork, batch: Tensor, signal: Tensor) -> Tensor:
    """The input gradient by autograd alone."""
    pictures = batch.detach().requires_grad_()
    (arrived,) = torch.autograd.grad(main_output(network.module(pictures)), pictures, signal)
    return arrived


def candidates(task: SpeedTask, network: TimedNetwork) -> list[Candidate]:
    """The calls that take turns in a task.

    With the headline ("pictures") MWP is timed for one image only: a batch costs it what it costs c-MWP. With many
    concepts one alone is timed as well, for the cost of each further one. The paper's figure ("layers") has maps that
    end at each layer; the default layer is in the headline.
    """
    if task.kind == "layers":
        layers = [layer for layer in timing.figure_layers(network) if layer != network.layer]
        return [candidate(network, method, layer=layer) for layer in layers for method in (MWP, C_MWP)]
    if task.kind == "compiled":
        return [candidate(network, way, concepts=number) for number in task.concepts for way in (C_MWP, COMPILED)]
    plain = () if task.kind == "concepts" else (GRADIENT, MWP) if task.batch == 1 else (GRADIENT,)
    counted = (1, *task.concepts) if task.kind == "concepts" else task.concepts
    return [candidate(network, method, pictures=task.batch) for method in plain] + [
        candidate(network, C_MWP, concepts=number, pictures=task.batch) for number in counted
    ]


# The rows of a task.


@dataclass
class SpeedBench:
    """Measures tasks on this machine."""

    seconds: float = 20.0  # for the rounds of one group, of which there are at least three
    threads: int = 1  # of torch
    device: str = "cpu"  # of the networks
    _open: dict[str, TimedNetwork] = field(default_factory=dict, init=False)

    @cached_property
    def basis(self) -> str:
        """A digest of torch's version and of the code on which times depend."""
        own = Path(__file__).parent
        parts = [Path(str(part.__file__)).parent for part in (propagation, exporting)]
        code = [*(file for part in parts for file in part.rglob("*.py")), own / "run.py", own / "timing.py"]
        return fingerprint(version("torch"), *(path.read_bytes() for path in sorted(code)), digits=12)

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
        facts = {**asdict(task), "files": Choice(task.model).key()["files"], "basis": self.basis}
        facts |= {"threads": self.threads, "device": self.device, "seconds": self.seconds}
        return json.dumps(facts, sort_keys=True)

    def __call__(self, task: SpeedTask) -> list[TableRow]:
        """The rows of one task."""
        torch.set_num_threads(self.threads)
        if task.model not in self._open:  # kept until another one is opened
            self._open = {task.model: open_network(task.model, self.device)}
        network = self._open[task.model]
        if task.kind == "memory":
            answer = timing.in_own_process(measure_memory, task, self.threads, self.device)
            layer = {FORWARD: "", GRADIENT: "input"}.get(task.method, network.layer)
            case = Case(network.name, layer, task.method, task.concepts[0], task.batch)
            return [row(case, network, task.kind, **answer)]
        timed = timed_rows(network, candidates(task, network), task.kind, self.seconds, task.batch)
        rows = [each for each in timed if _is_asked(each, task)]
        why = f"skipped: more than {MOST_MAPS} maps at once (concepts x images)"
        skipped = [Case(network.name, network.layer, C_MWP, number, task.batch) for number in task.skipped]
        return rows + [row(case, network, task.kind, note=why) for case in skipped]


def _is_asked(row: TableRow, task: SpeedTask) -> bool:
    """Whether a row is one of the task's own and not one that other groups have, timed only to compare with."""
    own = {"compiled": row["method"] == COMPILED, "layers": row["method"] != FORWARD}
    return bool(own.get(task.kind, task.kind != "concepts" or row["concepts"] in task.concepts))


def timed_rows(
    network: TimedNetwork, candidates: Sequence[Candidate], group: str, seconds: float, batch: int = 1
) -> list[TableRow]:
    """The rows of calls that take turns for so many seconds, those of maps with their arithmetic limit."""
    stopwatch = timing.Stopwatch.on(network.device)
    rounds = timing.Rounds(plain_forward(network, batch), stopwatch)
    rounds.run(candidates, seconds)
    rows = group_rows(rounds, network, group, batch)
    maps = [each for each in rows if each["method"] in {MWP, C_MWP}]
    above = timing.above_layers(
        network.module, network.batch(1), list({each["layer"]: None for each in maps}), stopwatch
    )
    for each in maps:
        arithmetic, spent = above[each["layer"]]
        each |= {"limit": round(1 + 2 * arithmetic, 4), "above": round(arithmetic, 4), "above_time": round(spent, 4)}
    return rows


def measure_memory(task: SpeedTask, threads: int, device: str) -> dict[str, Any]:
    """The result of a task of kind "memory" in this process."""
    torch.set_num_threads(threads)
    network = open_network(task.model, device)
    forward = run = plain_forward(network, task.batch)
    if task.method != FORWARD:
        run = candidate(network, task.method, concepts=task.concepts[0], pictures=task.batch).prepare()
    return {"peak_mb": round(timing.peak_of(forward, run, network.device), 1)}

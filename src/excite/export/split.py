"""A graph in two halves: what the image alone decides, and what each signal then has to do.

The network's answer and the totals that children share depend on no signal. So many signals for one image need the
upper half once, and the lower half, which is the smaller one, as often as there are signals. They go through that
together where its operations take many signals with what one image decided: then it reads the weights once for all.
What an operation wants for each signal has to be copied for that, and where this is much they go one after the other.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch

from excite.export.formats import INPUTS, OUTPUTS

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

__all__ = ["Halves"]

PICTURE, SIGNAL = INPUTS
MAP, OUTPUT = OUTPUTS
AT_ONCE = 8  # signals: what more would save is little beside the memory that they need

BROADCASTING = frozenset("Add And Div Equal Greater Less Max Min Mul Not Or Pow Sub Sum Where".split())
STRETCHED = frozenset(["ScatterElements"])  # want all that they are given in one size
LITTLE = 1 / 8  # of the weights' size: to copy so much costs less than reading the weights again


class Halves:
    """A file of `excite.export`, run by onnxruntime: one image, then any number of signals.

    Args:
        path: the file.
        threads: that a run may use; None: as many as there are cores.

    Example:
        >>> halves = Halves(Path("map.onnx"))                 # doctest: +SKIP
        >>> output, seen = halves.look(picture)               # doctest: +SKIP
        >>> halves.down(seen, signals).shape                  # doctest: +SKIP
        torch.Size([5, 1, 7, 7])
    """

    def __init__(self, path: Path, threads: int | None = None) -> None:
        onnx = import_module("onnx")
        import_module("onnx.utils")
        model = onnx.load_model(path)
        self._seen = _between(model.graph)
        extractor = onnx.utils.Extractor(model)
        if not extractor.value_infos.keys() >= set(self._seen):
            model = onnx.shape_inference.infer_shapes(model)
            extractor = onnx.utils.Extractor(model)
        _count(model.graph, PICTURE)
        self._up = _session(extractor.extract_model([PICTURE], [OUTPUT, *self._seen]), threads)
        _count(model.graph, SIGNAL)
        lower = extractor.extract_model([SIGNAL, *self._seen], [MAP])
        self._stretched = _stretched(lower.graph, set(self._seen))
        weights = sum(len(each.raw_data) for each in lower.graph.initializer)
        copied = sum(_bytes(each) for each in lower.graph.input if each.name in self._stretched)
        self._together = _is_for_many(lower.graph, set(self._seen)) and copied <= LITTLE * weights
        self._down = _session(lower, threads)

    def look(self, picture: Tensor) -> tuple[Tensor, list[Any]]:
        """The network's output for a batch of images, and what `down` needs of it."""
        output, *seen = self._up.run_with_ort_values([OUTPUT, *self._seen], {PICTURE: _value(picture)})
        return torch.from_numpy(output.numpy()), seen

    def down(self, seen: list[Any], signals: Tensor) -> Tensor:
        """The maps [K, N, h, w] of signals [K, N, *output] for those images."""
        if self._together and signals.shape[1] == 1:
            some = [self._down_once(seen, each[:, 0]) for each in torch.split(signals, AT_ONCE)]
            return torch.cat(some)[:, None]
        return torch.stack([self._down_once(seen, each) for each in signals])

    def _down_once(self, seen: list[Any], signal: Tensor) -> Tensor:
        given = dict(zip(self._seen, seen, strict=True))
        for name in self._stretched:
            given[name] = _for_each(given[name], len(signal))
        (found,) = self._down.run_with_ort_values([MAP], {SIGNAL: _value(signal), **given})
        return torch.from_numpy(found.numpy())


def _between(graph: Any) -> list[str]:
    """The values of the upper half that the lower half uses: those that depend on the image and on no signal.

    How many images or signals there are is no such value: each half counts its own.
    """
    seen, cued, counts = {PICTURE}, {SIGNAL}, set[str]()
    used: dict[str, None] = {}
    for node in graph.node:
        needed = _needed(node)
        if _counts(node) or (not counts.isdisjoint(needed) and (seen | cued).isdisjoint(needed)):
            counts.update(node.output)
        elif not cued.isdisjoint(needed):
            cued.update(node.output)
            used.update(dict.fromkeys(name for name in needed if name in seen))
        elif not seen.isdisjoint(needed):
            seen.update(node.output)
    return list(used)


def _counts(node: Any) -> bool:
    """Whether a node asks how many images or signals there are."""
    ends = {each.name: each.i for each in node.attribute}
    return node.op_type == "Shape" and node.input[0] in INPUTS and (ends.get("start", 0), ends.get("end")) == (0, 1)


def _count(graph: Any, name: str) -> None:
    """Have all who ask how many there are ask that input."""
    for node in graph.node:
        if _counts(node):
            node.input[0] = name


def _is_for_many(graph: Any, seen: set[str]) -> bool:
    """Whether a batch of signals can go with what one image decided: all that use both take one of many."""
    both = {node.op_type for node in graph.node if not seen.isdisjoint(_needed(node))}
    return bool(_batch(graph).dim_param) and both <= BROADCASTING | STRETCHED


def _stretched(graph: Any, seen: set[str]) -> list[str]:
    """What one image decided and some operation wants for each of the signals."""
    found = [name for node in graph.node if node.op_type in STRETCHED for name in node.input if name in seen]
    return list(dict.fromkeys(found))


def _bytes(value: Any) -> int:
    """How much memory a value takes for one image: places, of 8 bytes each. Sides that are not known count as one."""
    sides: list[int] = [side.dim_value or 1 for side in value.type.tensor_type.shape.dim]
    return 8 * math.prod(sides)


def _batch(graph: Any) -> Any:
    """How many signals the graph serves at once: a name, if any number will do."""
    (signal,) = (each for each in graph.input if each.name == SIGNAL)
    return signal.type.tensor_type.shape.dim[0]


def _needed(node: Any) -> list[str]:
    """The values a node uses, also those that only a graph within it uses."""
    inner = [part.g for part in node.attribute if part.HasField("g")]
    return [*node.input, *(name for graph in inner for each in graph.node for name in _needed(each))]


def _session(model: Any, threads: int | None) -> Any:
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads or 0  # 0: as many as there are cores
    options.log_severity_level = 3  # errors: that a weight is no use to one half is no news
    return runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _value(values: Tensor) -> Any:
    return import_module("onnxruntime").OrtValue.ortvalue_from_numpy(values.contiguous().numpy())


def _for_each(value: Any, count: int) -> Any:
    """The same for each of so many signals."""
    if value.shape()[0] == count:
        return value
    return import_module("onnxruntime").OrtValue.ortvalue_from_numpy(value.numpy().repeat(count, axis=0))

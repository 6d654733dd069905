"""A graph split in two: the part that depends on the image alone, and the part that depends on the signal.

The network's output and the normalisers Z depend on no signal. So several signals for one image need the first part
once, and only the second, smaller one for each signal. A batch of signals runs through the second part at once where
its operations broadcast the values of one image: then the weights are read once for all. Some operations need a copy of
these values for each signal; where that is much, the signals run one by one.
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

PICTURE, SIGNAL = INPUTS
MAP, OUTPUT = OUTPUTS
AT_ONCE = 8  # signals: more would need much memory and save little

BROADCASTING = frozenset("Add And Div Equal Greater Less Max Min Mul Not Or Pow Sub Sum Where".split())
STRETCHED = frozenset(["ScatterElements"])  # do not broadcast
LITTLE = 1 / 8  # of the weights' size: copying so much costs less than reading the weights again


class SplitGraph:
    """An ONNX file of `excite.export`, run by onnxruntime: one image, then any number of signals.

    Args:
        path: the file.
        threads: of a run; None: as many as there are cores.

    Example:
        >>> halves = SplitGraph(Path("map.onnx"))                 # doctest: +SKIP
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
        _count_by(model.graph, PICTURE)
        self._up = _session(extractor.extract_model([PICTURE], [OUTPUT, *self._seen]), threads)
        _count_by(model.graph, SIGNAL)
        lower = extractor.extract_model([SIGNAL, *self._seen], [MAP])
        self._stretched = _stretched(lower.graph, set(self._seen))
        weights = sum(len(each.raw_data) for each in lower.graph.initializer)
        copied = sum(_bytes(each) for each in lower.graph.input if each.name in self._stretched)
        self._together = _is_for_many(lower.graph, set(self._seen)) and copied <= LITTLE * weights
        self._down = _session(lower, threads)

    def look(self, picture: Tensor) -> tuple[Tensor, list[Any]]:
        """The network's output for a batch of images, and the values that `down` needs."""
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
    """The values of the first part that the second uses: those that depend on the image and on no signal.

    The size of a batch is no such value: each part has its own.
    """
    seen, dependent, counts = {PICTURE}, {SIGNAL}, set[str]()
    used: dict[str, None] = {}
    for node in graph.node:
        needed = _needed(node)
        if _counts(node) or (not counts.isdisjoint(needed) and (seen | dependent).isdisjoint(needed)):
            counts.update(node.output)
        elif not dependent.isdisjoint(needed):
            dependent.update(node.output)
            used.update(dict.fromkeys(name for name in needed if name in seen))
        elif not seen.isdisjoint(needed):
            seen.update(node.output)
    return list(used)


def _counts(node: Any) -> bool:
    """Whether a node is the size of the batch of images or signals."""
    ends = {each.name: each.i for each in node.attribute}
    return node.op_type == "Shape" and node.input[0] in INPUTS and (ends.get("start", 0), ends.get("end")) == (0, 1)


def _count_by(graph: Any, name: str) -> None:
    """Take the size of the batch from this input."""
    for node in graph.node:
        if _counts(node):
            node.input[0] = name


def _is_for_many(graph: Any, seen: set[str]) -> bool:
    """Whether a batch of signals can run with the values of one image: all operations on both broadcast."""
    both = {node.op_type for node in graph.node if not seen.isdisjoint(_needed(node))}
    (signal,) = (each for each in graph.input if each.name == SIGNAL)
    is_dynamic = bool(signal.type.tensor_type.shape.dim[0].dim_param)
    return is_dynamic and both <= BROADCASTING | STRETCHED


def _stretched(graph: Any, seen: set[str]) -> list[str]:
    """The values of one image that need a copy for each signal."""
    found = [name for node in graph.node if node.op_type in STRETCHED for name in node.input if name in seen]
    return list(dict.fromkeys(found))


def _bytes(value: Any) -> int:
    """The memory of a value for one image, 8 bytes an element. Unknown sides count as one."""
    sides: list[int] = [side.dim_value or 1 for side in value.type.tensor_type.shape.dim]
    return 8 * math.prod(sides)


def _needed(node: Any) -> list[str]:
    """The inputs of a node, and of the nodes of its subgraphs."""
    inner = [part.g for part in node.attribute if part.HasField("g")]
    return [*node.input, *(name for graph in inner for each in graph.node for name in _needed(each))]


def _session(model: Any, threads: int | None) -> Any:
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads or 0  # 0: as many as there are cores
    options.log_severity_level = 3  # errors: no warnings about weights that one part does not use
    return runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _value(values: Tensor) -> Any:
    return import_module("onnxruntime").OrtValue.ortvalue_from_numpy(values.contiguous().numpy())


def _for_each(value: Any, count: int) -> Any:
    """The value, repeated for each of the signals."""
    if value.shape()[0] == count:
        return value
    return import_module("onnxruntime").OrtValue.ortvalue_from_numpy(value.numpy().repeat(count, axis=0))

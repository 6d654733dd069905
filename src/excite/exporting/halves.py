"""A graph in two halves: what the picture alone decides, and what each signal then has to do.

The network's answer and the totals that children share depend on no signal. So many signals for one picture need the
upper half once, and the lower half, which is the smaller one, as often as there are signals.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch

from excite.exporting.program import INPUTS, OUTPUTS

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

__all__ = ["Halves"]

PICTURE, SIGNAL = INPUTS
MAP, OUTPUT = OUTPUTS


class Halves:
    """A file of `excite.exporting`, run by onnxruntime: one picture, then any number of signals.

    Args:
        path: the file.
        threads: that a run may use; None: as many as there are cores.

    Example:
        >>> halves = Halves(Path("map.onnx"))                 # doctest: +SKIP
        >>> output, seen = halves.look(picture)               # doctest: +SKIP
        >>> halves.down(seen, signal).shape                   # doctest: +SKIP
        torch.Size([1, 7, 7])
    """

    def __init__(self, path: Path, threads: int | None = None) -> None:
        onnx = import_module("onnx")
        import_module("onnx.utils")
        model = onnx.load_model(path)
        self._seen = _between(model.graph)
        extractor = onnx.utils.Extractor(model)
        if not extractor.value_infos.keys() >= set(self._seen):
            extractor = onnx.utils.Extractor(onnx.shape_inference.infer_shapes(model))
        self._up = _session(extractor.extract_model([PICTURE], [OUTPUT, *self._seen]), threads)
        self._down = _session(extractor.extract_model([SIGNAL, *self._seen], [MAP]), threads)

    def look(self, picture: Tensor) -> tuple[Tensor, list[Any]]:
        """The network's output for a batch of pictures, and what `down` needs of it."""
        output, *seen = self._up.run_with_ort_values([OUTPUT, *self._seen], {PICTURE: _value(picture)})
        return torch.from_numpy(output.numpy()), seen

    def down(self, seen: list[Any], signal: Tensor) -> Tensor:
        """The map of a signal for those pictures."""
        given = dict(zip(self._seen, seen, strict=True))
        (found,) = self._down.run_with_ort_values([MAP], {SIGNAL: _value(signal), **given})
        return torch.from_numpy(found.numpy())

    def __call__(self, picture: Tensor, signal: Tensor) -> tuple[Tensor, Tensor]:
        """Both halves: the map and the output."""
        output, seen = self.look(picture)
        return self.down(seen, signal), output


def _between(graph: Any) -> list[str]:
    """The values of the upper half that the lower half uses: those that depend on the picture and on no signal."""
    seen, cued = {PICTURE}, {SIGNAL}
    used: dict[str, None] = {}
    for node in graph.node:
        needed = _needed(node)
        if not cued.isdisjoint(needed):
            cued.update(node.output)
            used.update(dict.fromkeys(name for name in needed if name in seen))
        elif not seen.isdisjoint(needed):
            seen.update(node.output)
    return list(used)


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

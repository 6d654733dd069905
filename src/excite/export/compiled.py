"""Compiled maps: the forward and the top-down pass of one network as one graph, written once and run by onnxruntime.

The graph is split in two: the network's output and the normalisers Z depend on no signal, so several signals for one
image need the first part once, and only the second, smaller one for each signal, or for a batch of them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import torch

from excite.errors import MethodError, ModelError
from excite.export import INPUTS, OUTPUTS
from excite.images import read_image
from excite.io.cache import fingerprint
from excite.io.fetch import cache_folder
from excite.methods import Method, Units, find_method
from excite.models import Classifier, Preprocess
from excite.models.classifier import identity, on_cpu
from excite.models.layers import layer_grids
from excite.propagation.excitation_pass import signals_at
from excite.propagation.taps import layer_names
from excite.session import Session, as_list, recommended_layers
from excite.session_cache import weight_versions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    from excite.attention import AttentionMaps
    from excite.export.trace import Sizes
    from excite.session import Cue, ImageSource, Layer

METHODS = ("mwp", "c-mwp")
MAKERS = ("excite", "torch", "onnx", "onnxscript", "onnxruntime")  # what a graph depends on beside the network
PICTURE, SIGNAL = INPUTS
MAP, OUTPUT = OUTPUTS
AT_ONCE = 8  # signals: more would need much memory and save little
BROADCASTING = frozenset("Add And Div Equal Greater Less Max Min Mul Not Or Pow Sub Sum Where".split())
STRETCHED = {"ScatterElements"}  # do not broadcast
LITTLE = 1 / 8  # of the weights' size: copying so much costs less than reading the weights again


def compile(  # noqa: A001 - the word that torch and re have for it, too
    classifier: Classifier,
    *,
    layer: Layer | None = None,
    method: str = "c-mwp",
    size: tuple[int, int] | None = None,
    threads: int | None = None,
) -> Compiled:
    """Write the network and its top-down pass to a layer as one graph that onnxruntime runs.

    That takes from half a minute to a few. The graph is checked against the library and kept under
    ``$EXCITE_HOME/compiled`` (or ``~/.cache/excite``); the next time it is only opened and checked again. Other
    weights, another layer, method or size, and other versions of the packages involved need another graph.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        layer: the layer to read; None for the recommended one.
        method: ``c-mwp`` or ``mwp``.
        size: height and width of the prepared images, for a quicker graph that serves these alone; None: all sizes
            that the network allows. Where those are multiples of some number, images are prepared so (and
            ``compiled.classifier`` is the one that prepares them so).
        threads: that a run may use; None: as many as there are cores.

    Raises:
        ModelError: onnxruntime is missing, or the network cannot be written as one graph.
        MethodError: the method is neither of the two.

    Example:
        >>> compiled = excite.compile(excite.load(), size=(224, 224))   # doctest: +SKIP
        >>> (cat,) = compiled.attend("photo.jpg", "tabby")              # doctest: +SKIP
    """
    return Compiled(classifier, layer=layer, method=method, size=size, threads=threads)


class Compiled:
    """A classifier's maps by one method at one layer, run by onnxruntime: see `compile`.

    Attributes:
        classifier: with a preprocessing that gives sizes which the graph serves.
        layer: the layer that is read.
        method: ``c-mwp`` or ``mwp``.
        path: the file of the graph.
    """

    def __init__(
        self,
        classifier: Classifier,
        *,
        layer: Layer | None = None,
        method: str = "c-mwp",
        size: tuple[int, int] | None = None,
        threads: int | None = None,
    ) -> None:
        from excite.export.export import example_sizes
        from excite.export.formats import check_onnx

        if method not in METHODS:
            raise MethodError(f"the method {method!r} cannot be compiled: choose {' or '.join(METHODS)}")
        check_onnx()
        self._original, classifier = classifier, on_cpu(classifier)
        self.classifier, self.method = classifier, method
        self._method = find_method(method)
        example = example_sizes(classifier, size, dynamic=size is None)
        blank = torch.zeros(1, 3, example.height, example.width)
        named = None if layer is None else layer_names(classifier.module, [layer])
        self.layer = (named or recommended_layers(self._method, classifier, blank))[0]
        self._versions = weight_versions(self._original)
        self.path = _graph_path(classifier, self.layer, method, size)
        self._graph, self.sizes = self._opened(size, threads)
        self.classifier = _fitting(classifier, self.sizes)

    def attend(self, image: ImageSource, concepts: Sequence[Cue] | Cue | None = None) -> AttentionMaps:
        """Where in this image is the evidence for those concepts? As `excite.attend`, in a fraction of the time.

        Example:
            >>> compiled = excite.compile(excite.load(), size=(224, 224))   # doctest: +SKIP
            >>> [found.point() for found in compiled.attend("photo.jpg", ["tabby", "sofa"])]   # doctest: +SKIP
        """
        if weight_versions(self._original) != self._versions:
            raise ModelError("the network's weights were changed since it was compiled: compile it again")
        picture = read_image(image)
        inputs = self.classifier.prepared(picture)[None]
        height, width = inputs.shape[2:]
        if not self.sizes.fit(height, width):
            raise ModelError(
                f"an image preprocessed to {height} x {width} is not served by this compiled network, which takes "
                f"{self.sizes}: compile it with size=({height}, {width}), or preprocess all images alike "
                "(Preprocess(square=True))"
            )
        session = _CompiledSession(self.classifier, inputs, self._method, self.layer, self._graph)
        return session.attend(self._method, [as_list(concepts)], [picture])[0]

    def maps(self, inputs: Tensor, signals: Tensor) -> tuple[Tensor, Tensor]:
        """The maps [K, N, h, w] of several signals, and the network's output.

        Args:
            inputs: prepared images [N, 3, H, W] of a size and a number that the graph serves.
            signals: [K, *output]: how much of each output unit is asked for, as in `excite.mwp`.

        Example:
            >>> compiled = excite.compile(excite.load(), size=(224, 224))               # doctest: +SKIP
            >>> compiled.maps(torch.zeros(1, 3, 224, 224), torch.eye(1000)[:2, None])[0].shape   # doctest: +SKIP
            torch.Size([2, 1, 7, 7])
        """
        output, state = self._graph.look(inputs)
        return self._graph.down(state, signals), output

    def _opened(self, size: tuple[int, int] | None, threads: int | None) -> tuple[SplitGraph, Sizes]:
        """The kept graph; a new one where there is none, or none that agrees with the library."""
        from excite.export.export import export

        if self.path.is_file():
            try:
                return self._open(threads)
            except Exception:  # noqa: BLE001 - whatever is wrong with a kept file: it is made anew, or that says why not
                self.path.unlink(missing_ok=True)
        write = partial(export, self.classifier, self.path, layer=self.layer, method=self.method, size=size)
        try:  # any number of signals at once
            write(dynamic=True if size is None else "batch")
        except ModelError:
            if size is None:  # what was asked for all sizes is never written for one alone
                raise
            write(dynamic=False)
        return self._open(threads)

    def _open(self, threads: int | None) -> tuple[SplitGraph, Sizes]:
        from excite.export.export import check_agreement, compare, noise_image
        from excite.export.formats import read_sizes
        from excite.export.trace import MapModule

        graph, sizes = SplitGraph(self.path, threads), read_sizes(self.path)
        grids = layer_grids(self.classifier, [self.layer], noise_image(sizes)[None])
        module = MapModule(self.classifier.module, self.layer, self.method, grids)

        def second_of_two(picture: Tensor, signal: Tensor) -> tuple[Tensor, Tensor]:
            output, state = graph.look(picture)
            return graph.down(state, torch.stack([signal.roll(1, 1), signal]))[1], output

        check_agreement(compare(second_of_two, module, [noise_image(sizes)], batch=False))
        return graph, sizes


class _CompiledSession(Session):
    """A session in which the compiled graph runs in the network's place."""

    def __init__(self, classifier: Classifier, inputs: Tensor, method: Method, layer: str, graph: SplitGraph) -> None:
        super().__init__(classifier, {1.0: inputs}, [method], layer=layer)
        self._graph, self._layer = graph, layer
        self._output, self._state = graph.look(inputs)

    @property
    def output(self) -> Tensor:
        """The network's output."""
        return self._output

    def maps(self, _method: Method, units: Units) -> dict[str, Tensor]:
        """The maps [signals, N, h, w] of the layer."""
        return {self._layer: self._graph.down(self._state, signals_at(self._output, units))}


class SplitGraph:
    """An ONNX file of `excite.export`, run by onnxruntime: one image, then any number of signals."""

    def __init__(self, path: Path, threads: int | None = None) -> None:
        onnx = import_module("onnx")
        import_module("onnx.utils")
        model = onnx.load_model(path)
        self._seen = _between(model.graph)
        extractor = onnx.utils.Extractor(model)
        if not extractor.value_infos.keys() >= set(self._seen):
            model = onnx.shape_inference.infer_shapes(model)
            extractor = onnx.utils.Extractor(model)

        def part(inputs: list[str], outputs: list[str]) -> Any:
            for node in filter(_counts, model.graph.node):  # the size of the batch is that of this part's first input
                node.input[0] = inputs[0]
            return extractor.extract_model(inputs, outputs)

        self._up = _session(part([PICTURE], [OUTPUT, *self._seen]), threads)
        lower = part([SIGNAL, *self._seen], [MAP])
        self._stretched, self._together = _stretched(lower.graph, set(self._seen))
        self._down = _session(lower, threads)

    def look(self, picture: Tensor) -> tuple[Tensor, list[Any]]:
        """The network's output for a batch of images, and the values that `down` needs."""
        output, *seen = self._up.run_with_ort_values([OUTPUT, *self._seen], {PICTURE: _value(picture)})
        return torch.from_numpy(output.numpy()), seen

    def down(self, seen: list[Any], signals: Tensor) -> Tensor:
        """The maps [K, N, h, w] of signals [K, N, *output] for those images."""
        if self._together and signals.shape[1] == 1:
            return torch.cat([self._down_once(seen, some[:, 0]) for some in torch.split(signals, AT_ONCE)])[:, None]
        return torch.stack([self._down_once(seen, each) for each in signals])

    def _down_once(self, seen: list[Any], signal: Tensor) -> Tensor:
        given = dict(zip(self._seen, seen, strict=True))
        for name in self._stretched:
            if given[name].shape()[0] != len(signal):
                given[name] = _value(torch.from_numpy(given[name].numpy().repeat(len(signal), axis=0)))
        (found,) = self._down.run_with_ort_values([MAP], {SIGNAL: _value(signal), **given})
        return torch.from_numpy(found.numpy())


def _between(graph: Any) -> list[str]:
    """The values of the image alone that the second part uses; not the size of a batch: each part has its own."""
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


def _stretched(graph: Any, seen: set[str]) -> tuple[list[str], bool]:
    """The values of one image that need a copy for each signal, and whether a batch of signals should run at once.

    All operations on values of both must broadcast, so that the weights are read once for all signals, and the copies
    must be small beside the weights: 8 bytes an element, unknown sides count as one.
    """
    both = [node for node in graph.node if not seen.isdisjoint(_needed(node))]
    used = [name for node in both if node.op_type in STRETCHED for name in node.input if name in seen]
    shapes = {each.name: each.type.tensor_type.shape.dim for each in graph.input}
    copied = sum(8 * math.prod(side.dim_value or 1 for side in shapes[name]) for name in set(used))
    weights = sum(len(each.raw_data) for each in graph.initializer)
    broadcast = {node.op_type for node in both} <= BROADCASTING | STRETCHED
    is_dynamic = bool(shapes[SIGNAL][0].dim_param)
    return list(dict.fromkeys(used)), is_dynamic and broadcast and copied <= LITTLE * weights


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


def _fitting(classifier: Classifier, sizes: Sizes) -> Classifier:
    """The classifier with a preprocessing that gives multiples of the graph's step."""
    preprocess, step = classifier.preprocess, sizes.step or 1
    if not isinstance(preprocess, Preprocess) or preprocess.multiple % step == 0:
        return classifier
    return replace(classifier, preprocess=replace(preprocess, multiple=math.lcm(preprocess.multiple, step)))


def _graph_path(classifier: Classifier, layer: str, method: str, size: tuple[int, int] | None) -> Path:
    """The file of the graph, named by a digest of all that it depends on."""
    form = 3  # counts how graphs are written
    facts: list[Any] = [*identity(classifier), layer, method, size, form, [version(maker) for maker in MAKERS]]
    return cache_folder() / "compiled" / f"{fingerprint(facts, digits=32)}.onnx"

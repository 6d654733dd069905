"""Compiled maps: the forward and the top-down pass of one network as one graph, written once and run by onnxruntime."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import torch

from excite.errors import MethodError, ModelError
from excite.images import read_image
from excite.io.cache import fingerprint
from excite.io.fetch import cache_folder
from excite.methods import find_method
from excite.models import Preprocess
from excite.models.classifier import identity
from excite.propagation.excitation_pass import signals_at
from excite.session import Session, as_list, recommended_layers, weight_versions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    from excite.attention import AttentionMap
    from excite.export.split import SplitGraph
    from excite.export.trace import Sizes
    from excite.methods import Method, Units
    from excite.models import Classifier
    from excite.session import Cue, ImageSource

METHODS = ("mwp", "c-mwp")
MAKERS = ("excite", "torch", "onnx", "onnxscript", "onnxruntime")  # what a graph depends on beside the network
FORM = 2  # counts how graphs are written: earlier ones are right, and slower


def compile(  # noqa: A001 - the word that torch and re have for it, too
    classifier: Classifier,
    *,
    layer: str | None = None,
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

    Example:
        >>> compiled = excite.compile(excite.load(), size=(224, 224))   # doctest: +SKIP
        >>> compiled.layer                                              # doctest: +SKIP
        'blocks.14'
    """

    def __init__(
        self,
        classifier: Classifier,
        *,
        layer: str | None = None,
        method: str = "c-mwp",
        size: tuple[int, int] | None = None,
        threads: int | None = None,
    ) -> None:
        from excite.export.export import example_sizes
        from excite.export.formats import check_onnx

        if method not in METHODS:
            raise MethodError(f"the method {method!r} cannot be compiled: choose {' or '.join(METHODS)}")
        check_onnx()
        self.classifier, self.method = classifier, method
        self._method = find_method(method)
        example = example_sizes(classifier, size, dynamic=size is None)
        blank = torch.zeros(1, 3, example.height, example.width)
        self.layer = layer or recommended_layers(self._method, classifier, blank)[0]
        self._versions = weight_versions(classifier)
        self.path = _graph_path(classifier, self.layer, method, size)
        self._graph, self.sizes = self._opened(size, threads)
        self.classifier = _fitting(classifier, self.sizes)

    def attend(self, image: ImageSource, concepts: Sequence[Cue] | Cue | None = None) -> list[AttentionMap]:
        """Where in this image is the evidence for those concepts? As `excite.attend`, in a fraction of the time.

        Example:
            >>> compiled = excite.compile(excite.load(), size=(224, 224))   # doctest: +SKIP
            >>> [found.point() for found in compiled.attend("photo.jpg", ["tabby", "sofa"])]   # doctest: +SKIP
        """
        if weight_versions(self.classifier) != self._versions:
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
        if self.path.is_file():
            try:
                return self._open(threads)
            except Exception:  # noqa: BLE001 - whatever is wrong with a kept file: it is made anew, or that says why not
                self.path.unlink(missing_ok=True)
        self._write(size)
        return self._open(threads)

    def _write(self, size: tuple[int, int] | None) -> None:
        """A graph for any number of signals at once. Of one size, a network for single images will do, too.

        Where that fails as well it says why; and what was asked for all sizes is never written for one alone.
        """
        from excite.export.export import export

        write = partial(export, self.classifier, self.path, layer=self.layer, method=self.method, size=size)
        if size is None:
            write(dynamic=True)
            return
        try:
            write(dynamic="batch")
        except ModelError:
            write(dynamic=False)

    def _open(self, threads: int | None) -> tuple[SplitGraph, Sizes]:
        from excite.export.agreement import check_agreement, compare, noise_image
        from excite.export.formats import read_sizes
        from excite.export.split import SplitGraph
        from excite.export.trace import MapModule

        graph, sizes = SplitGraph(self.path, threads), read_sizes(self.path)
        module = MapModule(self.classifier.module, self.layer, self.method)

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


def _fitting(classifier: Classifier, sizes: Sizes) -> Classifier:
    """The classifier with a preprocessing that gives multiples of the graph's step."""
    preprocess, step = classifier.preprocess, sizes.step or 1
    if not isinstance(preprocess, Preprocess) or preprocess.multiple % step == 0:
        return classifier
    return replace(classifier, preprocess=replace(preprocess, multiple=math.lcm(preprocess.multiple, step)))


def _graph_path(classifier: Classifier, layer: str, method: str, size: tuple[int, int] | None) -> Path:
    """The file of the graph, named by a digest of all that it depends on."""
    facts: list[Any] = [*identity(classifier), layer, method, size, FORM, [version(maker) for maker in MAKERS]]
    return cache_folder() / "compiled" / f"{fingerprint(facts, digits=32)}.onnx"

"""`excite.export`: from a classifier to a file that computes its maps without this library."""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.nn import functional

from excite.errors import DataError, ModelError
from excite.export.formats import check_onnx, check_overwrite, metadata, open_onnx, open_pt2, write_onnx, write_pt2
from excite.export.trace import MapModule, Sizes, model_errors, trace_map
from excite.io.files import atomic_write
from excite.methods import find_method
from excite.models import Classifier, Preprocess
from excite.models.classifier import on_cpu
from excite.models.layers import layer_grids, token_stream
from excite.propagation import prior
from excite.propagation.taps import layer_names
from excite.session import recommended_layers

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO

    from PIL import Image
    from torch import Tensor

    from excite.export.formats import MapFunction
    from excite.session import Layer

FORMATS = {".onnx": (write_onnx, open_onnx), ".pt2": (write_pt2, open_pt2)}
LIMIT = 1e-4  # the largest difference from the library, as a share of the map's sum
FAINT = 1e-2  # of the signal: a contrast with a smaller sum is the difference of two nearly equal maps, whose
# rounding is more than 1e-4 of it, in the library too. There the limit is 1e-6 of the signal.


@dataclass(frozen=True)
class Agreement:
    """The differences of a file from the library."""

    pictures: int  # the number of images
    map: float  # the largest difference at any position, over the sum of the map's absolute values (at least `FAINT`)
    output: float  # the largest difference of any score, over the largest absolute score
    faintest: float  # the least sum of a map's absolute values, for a signal of 1


@dataclass(frozen=True)
class Exported:
    """An exported file."""

    path: Path
    facts: dict[str, Any]  # its metadata
    agreement: Agreement  # with the library

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without the labels."""
        facts = {key: value for key, value in self.facts.items() if key not in {"note", "labels", "multilabel"}}
        return {"file": str(self.path), "bytes": self.path.stat().st_size, **facts, "agreement": asdict(self.agreement)}


def export(
    classifier: Classifier,
    path: str | os.PathLike[str],
    *,
    layer: Layer | None = None,
    method: str = "c-mwp",
    size: tuple[int, int] | None = None,
    dynamic: bool | Literal["batch"] = True,
    pictures: Sequence[Image.Image] = (),
) -> Exported:
    """Write the network with its top-down pass to a layer into one file, and check it against the library.

    The file takes a preprocessed ``picture`` [N, 3, H, W] and a ``signal`` of the output's shape, and gives the
    ``map`` [N, h, w] and the ``output``. It is written only if it agrees with the library.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        path: ends in ``.onnx`` or ``.pt2``.
        layer: of the map; None for the classifier's default.
        method: ``c-mwp`` (signed: its positive part is the evidence) or ``mwp``.
        size: height and width of the images; by default those of the classifier's preprocessing.
        dynamic: serve batches and, where the network can, images of other sizes too; ``"batch"``: batches only.
        pictures: to check the file on; noise by default.

    Example:
        >>> found = export(excite.load(), "map.pt2")  # doctest: +SKIP
        >>> found.agreement.map < 1e-4                 # doctest: +SKIP
        True
    """
    path = Path(path)
    if path.suffix not in FORMATS:
        raise DataError(f"{str(path)!r} does not say what to write: end the name in .onnx or .pt2")
    if path.suffix == ".onnx":
        check_onnx()
    check_overwrite(path)
    classifier = on_cpu(classifier)
    sizes = example_sizes(classifier, size, dynamic=dynamic)
    with quiet_torch():
        named = None if layer is None else layer_names(classifier.module, [layer])
        noise = noise_image(sizes)[None]
        where = (named or recommended_layers(find_method(method), classifier, noise))[0]
        if where in token_stream(classifier, noise):
            raise ModelError(
                f"maps of tokens cannot be written as a graph, and layer {where!r} of {classifier.name} has tokens: "
                "use the classifier as it is, without compiling"
            )
        grids = layer_grids(classifier, [where], noise)
        if any(grid.tokens for grid in grids.values()):  # which lie elsewhere at another size
            sizes = replace(sizes, step=None)
        module = MapModule(classifier.module, where, method, grids)
        _try_once(module, sizes, classifier)
        traced = trace_map(module, sizes)
        facts = metadata(classifier, module, traced)
        inputs = [preprocessed(classifier, picture, traced.sizes) for picture in pictures]
        inputs = inputs or [noise_image(traced.sizes)]
        write, reopen = FORMATS[path.suffix]
        found: list[Agreement] = []

        def write_checked(file: BinaryIO) -> None:
            with model_errors():
                write(traced, facts, file)
            file.flush()
            run, _ = reopen(Path(file.name))
            found.append(compare(run, module, inputs, batch=traced.sizes.batch))
            check_agreement(found[0])

        atomic_write(path, write_checked)
    return Exported(path, facts, found[0])


def example_sizes(classifier: Classifier, size: tuple[int, int] | None, *, dynamic: bool | Literal["batch"]) -> Sizes:
    """The default size of a classifier, or another, as the example for all sizes or as the only one."""
    preprocess = classifier.preprocess
    usual = preprocess.shorter_side if isinstance(preprocess, Preprocess) else 224
    height, width = size or (usual, usual)
    return Sizes(height, width, step=1 if dynamic is True else None, batch=bool(dynamic))


def _try_once(module: MapModule, sizes: Sizes, classifier: Classifier) -> None:
    """Compute one map without tracing: errors about the layer, the rules or the size are clearer there."""
    picture = noise_image(sizes)[None]
    with classifier.running(picture, remedy="give another --size"):
        module(picture, module.output(picture))


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Suppress torch's warnings and logs about its own tracing."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)


def noise_image(sizes: Sizes) -> Tensor:
    """Gaussian noise [3, H, W], always the same: for a check without real images."""
    return torch.randn(3, sizes.height, sizes.width, generator=torch.Generator().manual_seed(0))


def preprocessed(classifier: Classifier, picture: Image.Image, sizes: Sizes) -> Tensor:
    """An image, preprocessed for the classifier in a size that the file serves."""
    preprocess = classifier.preprocess
    if not isinstance(preprocess, Preprocess):
        values = preprocess(picture)
    elif sizes.step is None:
        stretched = picture.resize((sizes.width, sizes.height))
        values = replace(preprocess, shorter_side=min(sizes.height, sizes.width), square=False)(stretched)
    else:
        values = replace(preprocess, multiple=sizes.step)(picture)
    if sizes.fit(values.shape[1], values.shape[2]):
        return values
    return functional.interpolate(values[None], (sizes.height, sizes.width), mode="bilinear")[0]


def compare(run: MapFunction, module: MapModule, pictures: Sequence[Tensor], *, batch: bool) -> Agreement:
    """Run a file and the library on preprocessed images [3, H, W], with the top class of each as the signal."""
    inputs = [picture[None] for picture in pictures]
    if batch:  # an image, and the same upside down
        inputs.append(torch.stack([pictures[0], pictures[0].flip(1)]))
    maps, outputs, sums = zip(*(_differences(run, module, each) for each in inputs), strict=True)
    return Agreement(len(pictures), max(maps), max(outputs), min(sums))


@torch.no_grad()
def _differences(run: MapFunction, module: MapModule, picture: Tensor) -> tuple[float, float, float]:
    output = module.output(picture)
    best = output.flatten(2).mean(2).argmax(1) if output.dim() > 2 else output.argmax(1)
    signal = torch.cat([prior(output[k : k + 1], {int(unit): 1.0}) for k, unit in enumerate(best)])
    ours, theirs = module(picture, signal), run(picture, signal)
    sums = ours[0].abs().sum((1, 2))
    in_map = _difference(theirs[0], ours[0], sums.clamp(min=FAINT))
    in_output = _difference(theirs[1], ours[1], ours[1].abs().amax()[None])
    return in_map, in_output, float(sums.min())


def _difference(theirs: Tensor, ours: Tensor, scale: Tensor) -> float:
    """The largest difference, relative to a scale for each image where that is not 0; infinite for NaN."""
    if theirs.shape != ours.shape:
        return float("inf")
    differences = (theirs - ours).abs().flatten(1).amax(1)
    return float(torch.where(scale > 0, differences / scale, differences).nan_to_num(float("inf")).max())


def check_agreement(agreement: Agreement) -> None:
    """Raise a `ModelError` for a file that differs from the library by more than the limit."""
    if not max(agreement.map, agreement.output) <= LIMIT:
        raise ModelError(
            f"the file differs from the library by {agreement.map:.1e} of the map's sum (which is as little as "
            f"{agreement.faintest:.1e} of the signal) and {agreement.output:.1e} of the largest score, more than "
            f"{LIMIT:.0e}: nothing was written"
        )

"""`excite.export`: from a classifier to a file that computes its maps without this library."""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from excite.errors import DataError, ExciteError, ModelError
from excite.export.agreement import check_agreement, compare, noise_image, preprocessed
from excite.export.formats import check_onnx, check_overwrite, metadata, open_onnx, open_pt2, write_onnx, write_pt2
from excite.export.trace import MapModule, Sizes, model_errors, trace_map
from excite.io.files import atomic_write
from excite.methods import find_method
from excite.models import Preprocess
from excite.session import recommended_layers

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO

    from PIL import Image

    from excite.export.agreement import Agreement
    from excite.models import Classifier

FORMATS = {".onnx": (write_onnx, open_onnx), ".pt2": (write_pt2, open_pt2)}
USUAL = 224  # the side of an image for a classifier without a default
LOGGERS = ("torch._subclasses.fake_tensor", "torch.onnx", "torch.export", "onnxscript")


@dataclass(frozen=True)
class Exported:
    """An exported file, and its agreement with the library.

    Attributes:
        path: the file.
        facts: its metadata.
        agreement: with the library.
    """

    path: Path
    facts: dict[str, Any]
    agreement: Agreement

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without the labels."""
        facts = {key: value for key, value in self.facts.items() if key not in {"note", "labels", "multilabel"}}
        size, agreement = self.path.stat().st_size, asdict(self.agreement)
        return {"file": str(self.path), "bytes": size, **facts, "agreement": agreement}


def export(
    classifier: Classifier,
    path: str | os.PathLike[str],
    *,
    layer: str | None = None,
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
    sizes = example_sizes(classifier, size, dynamic=dynamic)
    with quiet_torch():
        where = layer or recommended_layers(find_method(method), classifier, noise_image(sizes)[None])[0]
        module = MapModule(classifier.module, where, method)
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
    """The default size of a classifier, or another, as the example for all sizes or as the only one.

    Example:
        >>> str(example_sizes(excite.load(), None, dynamic=False))
        '224 x 224 only'
    """
    preprocess = classifier.preprocess
    usual = preprocess.shorter_side if isinstance(preprocess, Preprocess) else USUAL
    height, width = size or (usual, usual)
    return Sizes(height, width, step=1 if dynamic is True else None, batch=bool(dynamic))


def _try_once(module: MapModule, sizes: Sizes, classifier: Classifier) -> None:
    """Compute one map without tracing: errors about the layer, the rules or the size are clearer there."""
    try:
        picture = noise_image(sizes)[None]
        module(picture, module.output(picture))
    except ExciteError:
        raise
    except RuntimeError as error:
        said = str(error).partition("\n")[0]
        raise ModelError(
            f"{classifier.name} fails on an image of {sizes.height} x {sizes.width}: {said}; give another --size"
        ) from error


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Suppress torch's warnings and logs about its own tracing.

    Example:
        >>> with quiet_torch():
        ...     warnings.warn("an old name", FutureWarning)
    """
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        with warnings.catch_warnings():
            for kind in (FutureWarning, DeprecationWarning, UserWarning):
                warnings.simplefilter("ignore", kind)
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)

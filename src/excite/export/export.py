"""From a classifier to a file that makes its maps without this library."""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from excite.errors import DataError, ExciteError, ModelError
from excite.export.agreement import any_picture, compare, demand, prepared
from excite.export.formats import about, check_onnx, check_ours, open_onnx, open_pt2, write_onnx, write_pt2
from excite.export.trace import Looking, Sizes, explained, write_down
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


# What torch says about itself while a graph is written down is no news for the user.

LOGGERS = ("torch._subclasses.fake_tensor", "torch.onnx", "torch.export", "onnxscript")


@contextmanager
def quietly() -> Iterator[None]:
    """Within, torch's notes about old names of its own and about ways it tried in vain are not shown.

    Example:
        >>> with quietly():
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


# From a classifier to a file that makes its maps without this library.

KINDS = {".onnx": (write_onnx, open_onnx), ".pt2": (write_pt2, open_pt2)}
USUAL = 224  # the side of an image for a classifier that does not say


@dataclass(frozen=True)
class Exported:
    """A file that was written, and how well it agrees with the library.

    Attributes:
        path: the file.
        facts: what it says about itself.
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
    """Write the network and the whole way down to a layer into one file, and check it against the library.

    The file takes a prepared ``picture`` [N, 3, H, W] and a ``signal`` of the output's shape, and gives the ``map``
    [N, h, w] and the ``output``. It is there only if it agrees with the library.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        path: ends in ``.onnx`` or ``.pt2``.
        layer: where to read the map; None for the classifier's own best.
        method: ``c-mwp`` (signed: its positive part is the evidence) or ``mwp``.
        size: height and width of the images; by default what the classifier was made for.
        dynamic: serve batches and, where the network can, images of other sizes too; ``"batch"``: batches only.
        pictures: to check the file on; an image of noise if there is none.

    Example:
        >>> found = export(excite.load(), "map.pt2")  # doctest: +SKIP
        >>> found.agreement.map < 1e-4                 # doctest: +SKIP
        True
    """
    path = Path(path)
    if path.suffix not in KINDS:
        raise DataError(f"{str(path)!r} does not say what to write: end the name in .onnx or .pt2")
    if path.suffix == ".onnx":
        check_onnx()
    check_ours(path)
    sizes = usual_sizes(classifier, size, dynamic=dynamic)
    with quietly():
        where = layer or recommended_layers(find_method(method), classifier, any_picture(sizes)[None])[0]
        looking = Looking(classifier.module, where, method)
        _try(looking, sizes, classifier)
        written = write_down(looking, sizes)
        facts = about(classifier, looking, written)
        shown = [prepared(classifier, picture, written.sizes) for picture in pictures] or [any_picture(written.sizes)]
        write, reopen = KINDS[path.suffix]
        found: list[Agreement] = []

        def write_checked(file: BinaryIO) -> None:
            with explained():
                write(written, facts, file)
            file.flush()
            run, _ = reopen(Path(file.name))
            found.append(compare(run, looking, shown, batch=written.sizes.batch))
            demand(found[0])

        atomic_write(path, write_checked)
    return Exported(path, facts, found[0])


def usual_sizes(classifier: Classifier, size: tuple[int, int] | None, *, dynamic: bool | Literal["batch"]) -> Sizes:
    """The size that a classifier was made for, or another, as an example of all or as the only one.

    Example:
        >>> str(usual_sizes(excite.load(), None, dynamic=False))
        '224 x 224 only'
    """
    preprocess = classifier.preprocess
    usual = preprocess.shorter_side if isinstance(preprocess, Preprocess) else USUAL
    height, width = size or (usual, usual)
    return Sizes(height, width, step=1 if dynamic is True else None, batch=bool(dynamic))


def _try(looking: Looking, sizes: Sizes, classifier: Classifier) -> None:
    """Look once in the usual way: what is wrong with the layer, the rules or the size is then said in plain words."""
    try:
        picture = any_picture(sizes)[None]
        looking(picture, looking.answer(picture))
    except ExciteError:
        raise
    except RuntimeError as error:
        said = str(error).partition("\n")[0]
        raise ModelError(
            f"{classifier.name} fails on an image of {sizes.height} x {sizes.width}: {said}; give another --size"
        ) from error

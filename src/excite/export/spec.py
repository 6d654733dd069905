"""What a file says about itself: which network, which layer, and how a picture becomes its input."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile, is_zipfile

from excite.errors import ExciteError
from excite.export.sizes import Sizes
from excite.export.trace import DUALS
from excite.models import Preprocess

if TYPE_CHECKING:
    from pathlib import Path

    from excite.export.trace import Looking, Written
    from excite.models import Classifier

__all__ = ["KEY", "about", "check_ours", "sizes_in"]

KEY = "excite"  # of the entry in a file
MARK = "made by excite export"
TAIL = 2**22  # bytes at the end of a file, within which the entry stands


def about(classifier: Classifier, looking: Looking, written: Written) -> dict[str, Any]:
    """The facts, in plain values.

    Example:
        >>> about(classifier, looking, written)["layer"]  # doctest: +SKIP
        'blocks.14'
    """
    return {
        "note": MARK,
        "version": version("excite"),
        "model": classifier.name,
        "layer": looking.layer,
        "method": looking.method,
        "contrastive": DUALS[looking.method] != 0,
        "sizes": _sizes(written.sizes),
        "signal": ["batch", *written.signal],
        "preprocess": _preprocess(classifier),
        "multilabel": [*classifier.multilabel] if isinstance(classifier.multilabel, range) else classifier.multilabel,
        "labels": None if classifier.labels is None else list(classifier.labels),
    }


def _sizes(sizes: Sizes) -> dict[str, Any]:
    return {
        "serves": str(sizes),
        "height": sizes.height,
        "width": sizes.width,
        "multiple": sizes.step,
        "least": None if sizes.step is None else sizes.least,
        "batch": "any" if sizes.batch else 1,
    }


def sizes_in(path: Path) -> Sizes:
    """Which pictures a file serves, as it says itself.

    Example:
        >>> str(sizes_in(Path("map.onnx")))  # doctest: +SKIP
        '224 x 224 only'
    """
    model = import_module("onnx").load_model(path)
    (entry,) = (entry.value for entry in model.metadata_props if entry.key == KEY)
    said = json.loads(entry)["sizes"]
    return Sizes(said["height"], said["width"], said["multiple"], said["least"] or 1, batch=said["batch"] == "any")


def _preprocess(classifier: Classifier) -> dict[str, Any] | str:
    """``(value - mean) * scale`` for values 0 to 255 in that order of channels; a word where it is one's own code."""
    preprocess = classifier.preprocess
    if isinstance(preprocess, Preprocess):
        return asdict(preprocess)
    return getattr(preprocess, "__qualname__", type(preprocess).__name__)


def check_ours(path: Path) -> None:
    """Refuse to write over a file that this command did not make.

    Example:
        >>> from pathlib import Path
        >>> check_ours(Path("new.onnx"))
        >>> _ = Path("thesis.onnx").write_text("three years of work")
        >>> check_ours(Path("thesis.onnx"))
        Traceback (most recent call last):
        excite.errors.ExciteError: 'thesis.onnx' is there and was not made by excite export: give another name
    """
    if not path.is_file():
        return
    try:
        ours = _has_entry(path)
    except OSError as error:
        raise ExciteError(f"cannot read {str(path)!r}, which would be written over: {error.strerror}") from error
    if not ours:
        raise ExciteError(f"{str(path)!r} is there and was not made by excite export: give another name")


def _has_entry(path: Path) -> bool:
    if is_zipfile(path):  # a .pt2
        try:
            with ZipFile(path) as archive:
                return any(name.endswith(f"/{KEY}.json") for name in archive.namelist())
        except (BadZipFile, NotImplementedError, ValueError):  # damaged: whose it was, nobody can tell
            return False
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL))
        return json.dumps(MARK).encode() in file.read()

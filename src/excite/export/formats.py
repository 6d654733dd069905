"""ONNX files: written by torch's exporter, run by onnxruntime (the extra ``onnx``)."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib import import_module
from io import BytesIO
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile, is_zipfile

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from excite import __version__
from excite.errors import ExciteError, ModelError
from excite.export.trace import DUALS, Sizes
from excite.models import Preprocess

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from torch import Tensor
    from torch.fx import GraphModule

    from excite.export.agreement import Run
    from excite.export.trace import Looking, Written
    from excite.models import Classifier


# A graph as a program of torch.export: with names for its inputs, and the sizes that it serves.

INPUTS, OUTPUTS = ("picture", "signal"), ("map", "output")
BATCH = 3


class Graph(nn.Module):
    """The graph under the names that users see."""

    def __init__(self, graph: GraphModule) -> None:
        super().__init__()
        self.course = graph  # not "graph": torch gives that name another meaning

    def forward(self, picture: Tensor, signal: Tensor) -> dict[str, Tensor]:
        """The map and the output."""
        return dict(zip(OUTPUTS, self.course(picture, signal), strict=True))


def program(written: Written) -> ExportedProgram:
    """The graph as torch.export writes and runs it."""
    sizes = written.sizes
    batch = BATCH if sizes.batch else 1
    picture = torch.zeros(batch, 3, sizes.height, sizes.width)
    signal = torch.zeros(batch, *written.signal)
    shapes: dict[str, dict[int, Any]] = {"picture": {}, "signal": {}}
    if sizes.batch:
        shapes["picture"][0] = shapes["signal"][0] = Dim.DYNAMIC
    if sizes.step is not None:
        for dim, name in ((2, "height"), (3, "width")):
            least = max(1, sizes.least // sizes.step)
            # With a name of its own, torch would want each comparison of sizes proven, and some it cannot prove.
            shapes["picture"][dim] = sizes.step * Dim(name, min=least) if sizes.step > 1 else Dim.DYNAMIC(min=least)
        for dim in range(2, signal.dim()):
            shapes["signal"][dim] = Dim.AUTO
    with torch.no_grad(), torch.backends.nnpack.flags(enabled=False):
        return torch.export.export(Graph(written.graph), (picture, signal), dynamic_shapes=shapes, strict=False)


# What a file says about itself: which network, which layer, and how an image becomes its input.

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
        "version": __version__,
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
    """Which images a file serves, as it says itself.

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


# ONNX files: written by torch's exporter, run by onnxruntime (the extra ``onnx``).

OPSET = 18  # the first in which a scatter can add up
MOST = 2**31 - 2**24  # bytes that an ONNX file without others beside it can hold


def check_onnx() -> None:
    """Whether the packages are there: asked before minutes of work for them."""
    try:
        for package in ("onnx", "onnxscript", "onnxruntime"):
            import_module(package)
    except ImportError:
        raise ModelError("ONNX files are written with other packages: pip install 'excite[onnx]'") from None


def write_onnx(written: Written, facts: dict[str, Any], file: BinaryIO) -> None:
    """Write a graph as one ONNX file.

    Example:
        >>> write_onnx(written, facts, file)  # doctest: +SKIP
    """
    size = sum(tensor.numel() * tensor.element_size() for tensor in written.graph.state_dict().values())
    if size > MOST:
        raise ModelError("the network's weights are more than an ONNX file can hold (2 GB): export it with --pt2")
    made = torch.onnx.export(
        program(written),
        dynamo=True,
        opset_version=OPSET,
        input_names=list(INPUTS),
        output_names=list(OUTPUTS),
        verbose=False,
    )
    if made is None:
        raise AssertionError("torch.onnx.export gives a program when it is given no file")
    model = made.model_proto
    entry = model.metadata_props.add()
    entry.key, entry.value = KEY, json.dumps(facts)
    file.write(model.SerializeToString())


def open_onnx(path: Path) -> tuple[Run, dict[str, Any]]:
    """A way to run such a file, and what it says about itself.

    Example:
        >>> run, facts = open_onnx(Path("map.onnx"))  # doctest: +SKIP
    """
    runtime = import_module("onnxruntime")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def run(picture: Tensor, signal: Tensor) -> tuple[Tensor, Tensor]:
        given = dict(zip(INPUTS, (picture.numpy(), signal.numpy()), strict=True))
        found, output = session.run(list(OUTPUTS), given)
        return torch.from_numpy(found), torch.from_numpy(output)

    return run, json.loads(session.get_modelmeta().custom_metadata_map[KEY])


# Files of torch.export: run by torch alone, without this library.

ENTRY = f"{KEY}.json"


def write_pt2(written: Written, facts: dict[str, Any], file: BinaryIO) -> None:
    """Write a graph as a file of torch.export.

    Example:
        >>> write_pt2(written, facts, file)  # doctest: +SKIP
    """
    content = BytesIO()  # torch ends the whole process when a file of its own cannot be written, as on a full disk
    torch.export.save(program(written), content, extra_files={ENTRY: json.dumps(facts)})
    file.write(content.getbuffer())


def open_pt2(path: Path) -> tuple[Run, dict[str, Any]]:
    """A way to run such a file, and what it says about itself.

    Example:
        >>> run, facts = open_pt2(Path("map.pt2"))  # doctest: +SKIP
    """
    extra = {ENTRY: ""}
    with path.open("rb") as file:
        module = torch.export.load(file, extra_files=extra).module()

    def run(picture: Tensor, signal: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            found = module(picture, signal)
        return found[OUTPUTS[0]], found[OUTPUTS[1]]

    return run, json.loads(extra[ENTRY])

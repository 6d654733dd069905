"""The file formats: ONNX (run by onnxruntime, the extra ``onnx``) and torch.export (run by torch), with metadata."""

import json
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import BadZipFile, ZipFile, is_zipfile

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram

from excite import __version__
from excite.errors import ExciteError, ModelError
from excite.export import INPUTS, OUTPUTS
from excite.export.trace import BATCH, DUALS, MapModule, Sizes, TracedGraph
from excite.models import Classifier, Preprocess

MapFunction = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
KEY = "excite"  # of the entry in a file
MARK = "made by excite export"
TAIL = 2**22  # bytes at the end of a file that contain the entry
ENTRY = f"{KEY}.json"  # of a .pt2


def check_onnx() -> None:
    """Raise a `ModelError` without the packages, before minutes of work."""
    try:
        for package in ("onnx", "onnxscript", "onnxruntime"):
            import_module(package)
    except ImportError:
        raise ModelError("ONNX files are written with other packages: pip install 'excite[onnx]'") from None


def write_onnx(traced: TracedGraph, facts: dict[str, Any], file: BinaryIO) -> None:
    """Write a graph as one ONNX file."""
    size = sum(tensor.numel() * tensor.element_size() for tensor in traced.graph.state_dict().values())
    if size > 2**31 - 2**24:  # bytes
        raise ModelError("the network's weights are more than an ONNX file can hold (2 GB): export it with --pt2")
    made = torch.onnx.export(
        program(traced),
        dynamo=True,
        opset_version=18,  # the first in which a scatter can add up
        input_names=list(INPUTS),
        output_names=list(OUTPUTS),
        verbose=False,
    )
    model = made.model_proto  # type: ignore[union-attr]  # None only where a file is given
    entry = model.metadata_props.add()
    entry.key, entry.value = KEY, json.dumps(facts)
    file.write(model.SerializeToString())


def open_onnx(path: Path) -> tuple[MapFunction, dict[str, Any]]:
    """The function of an ONNX file, and its metadata."""
    session = import_module("onnxruntime").InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def run(picture: Tensor, signal: Tensor) -> tuple[Tensor, Tensor]:
        found, output = session.run(list(OUTPUTS), {"picture": picture.numpy(), "signal": signal.numpy()})
        return torch.from_numpy(found), torch.from_numpy(output)

    return run, json.loads(session.get_modelmeta().custom_metadata_map[KEY])


def write_pt2(traced: TracedGraph, facts: dict[str, Any], file: BinaryIO) -> None:
    """Write a graph as a file of torch.export."""
    content = BytesIO()  # torch aborts the process when it cannot write a file itself, as on a full disk
    torch.export.save(program(traced), content, extra_files={ENTRY: json.dumps(facts)})
    file.write(content.getbuffer())


def open_pt2(path: Path) -> tuple[MapFunction, dict[str, Any]]:
    """The function of a file of torch.export, and its metadata."""
    extra = {ENTRY: ""}
    with path.open("rb") as file:
        module = torch.export.load(file, extra_files=extra).module()

    def run(picture: Tensor, signal: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            found = module(picture, signal)
        return found["map"], found["output"]

    return run, json.loads(extra[ENTRY])


class NamedGraph(nn.Module):
    """A graph with named inputs and outputs."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__()
        self.traced = graph  # not "graph": torch gives that name another meaning

    def forward(self, picture: Tensor, signal: Tensor) -> dict[str, Tensor]:
        """The map and the output."""
        return dict(zip(OUTPUTS, self.traced(picture, signal), strict=True))


def program(traced: TracedGraph) -> ExportedProgram:
    """The graph as a program of torch.export, for the sizes that it serves."""
    sizes = traced.sizes
    batch = BATCH if sizes.batch else 1
    picture = torch.zeros(batch, 3, sizes.height, sizes.width)
    signal = torch.zeros(batch, *traced.signal)
    shapes: dict[str, dict[int, Any]] = {name: {0: Dim.DYNAMIC} if sizes.batch else {} for name in INPUTS}
    if sizes.step is not None:
        least = max(1, sizes.least // sizes.step)
        for dim, name in ((2, "height"), (3, "width")):
            # With a named dimension torch has to prove each comparison of sizes, and cannot prove some.
            shapes["picture"][dim] = sizes.step * Dim(name, min=least) if sizes.step > 1 else Dim.DYNAMIC(min=least)
        shapes["signal"] |= dict.fromkeys(range(2, signal.dim()), Dim.AUTO)
    with torch.no_grad(), torch.backends.nnpack.flags(enabled=False):
        return torch.export.export(NamedGraph(traced.graph), (picture, signal), dynamic_shapes=shapes, strict=False)


def metadata(classifier: Classifier, module: MapModule, traced: TracedGraph) -> dict[str, Any]:
    """The metadata of a file, in plain values; of a user's own preprocessing its name."""
    sizes, preprocess = traced.sizes, classifier.preprocess
    name = getattr(preprocess, "__qualname__", type(preprocess).__name__)
    return {
        "note": MARK,
        "version": __version__,
        "model": classifier.name,
        "layer": module.layer,
        "method": module.method,
        "contrastive": DUALS[module.method] != 0,
        "sizes": {
            "serves": str(sizes),
            "height": sizes.height,
            "width": sizes.width,
            "multiple": sizes.step,
            "least": None if sizes.step is None else sizes.least,
            "batch": "any" if sizes.batch else 1,
        },
        "signal": ["batch", *traced.signal],
        "preprocess": asdict(preprocess) if isinstance(preprocess, Preprocess) else name,
        "multilabel": [*classifier.multilabel] if isinstance(classifier.multilabel, range) else classifier.multilabel,
        "labels": None if classifier.labels is None else list(classifier.labels),
    }


def read_sizes(path: Path) -> Sizes:
    """The image sizes in the metadata of an ONNX file."""
    model = import_module("onnx").load_model(path)
    (entry,) = (entry.value for entry in model.metadata_props if entry.key == KEY)
    said = json.loads(entry)["sizes"]
    return Sizes(said["height"], said["width"], said["multiple"], said["least"] or 1, batch=said["batch"] == "any")


def check_overwrite(path: Path) -> None:
    """Refuse to overwrite a file that this command did not write."""
    try:
        if not path.is_file() or _has_entry(path):
            return
    except OSError as error:
        raise ExciteError(f"cannot read {str(path)!r}, which would be written over: {error.strerror}") from error
    raise ExciteError(f"{str(path)!r} is there and was not made by excite export: give another name")


def _has_entry(path: Path) -> bool:
    if is_zipfile(path):  # a .pt2
        try:
            with ZipFile(path) as archive:
                return any(name.endswith(f"/{ENTRY}") for name in archive.namelist())
        except (BadZipFile, NotImplementedError, ValueError):  # damaged
            return False
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL))
        return json.dumps(MARK).encode() in file.read()

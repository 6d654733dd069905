"""ONNX files: written by torch's exporter, run by onnxruntime (the extra ``onnx``)."""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch

from excite.errors import ModelError
from excite.export.program import INPUTS, OUTPUTS, program
from excite.export.spec import KEY

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from torch import Tensor

    from excite.export.agreement import Run
    from excite.export.trace import Written

__all__ = ["check_onnx", "open_onnx", "write_onnx"]

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

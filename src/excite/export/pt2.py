"""Files of torch.export: run by torch alone, without this library."""

from __future__ import annotations

import json
from io import BytesIO
from typing import TYPE_CHECKING, Any

import torch

from excite.export.program import OUTPUTS, program
from excite.export.spec import KEY

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from torch import Tensor

    from excite.export.agreement import Run
    from excite.export.trace import Written

__all__ = ["open_pt2", "write_pt2"]

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

"""Where a training stands, in one file that is either whole or not there: killed at any moment, it goes on from there.

Tensors and JSON, nothing that is run when it is read.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO

import torch

from excite.errors import ModelError
from excite.io.files import atomic_write
from excite.training.tags.curves import Check
from excite.training.tags.failures import Failures

if TYPE_CHECKING:
    from pathlib import Path

    from excite.training.tags.model import Trainee

__all__ = ["Standing", "read_checkpoint", "save_checkpoint"]

FAILED = "failed"


@dataclass
class Standing:
    """How far a training is, the tensors aside.

    Attributes:
        step: steps made.
        checks: the curves so far.
        loss: summed over the pictures since the last check,
        pictures: and how many these are.
        failures: the pictures that could not be read.
    """

    step: int = 0
    checks: list[Check] = field(default_factory=list)
    loss: float = 0.0
    pictures: int = 0
    failures: Failures = field(default_factory=Failures)

    @property
    def losses(self) -> list[float]:
        """What the rate follows."""
        return [check.watched for check in self.checks]


def save_checkpoint(path: Path, key: str, trainee: Trainee, standing: Standing) -> None:
    """Write down all that the next step depends on.

    Args:
        path: the file.
        key: changes when a training would take another course.
        trainee: the network.
        standing: how far it is.
    """
    from safetensors.torch import save

    tensors = {name: tensor.cpu().contiguous() for name, tensor in trainee.state()}
    tensors[FAILED] = torch.tensor(sorted(standing.failures.rows), dtype=torch.int64)
    facts = {
        "step": standing.step,
        "checks": [asdict(check) for check in standing.checks],
        "loss": standing.loss,
        "pictures": standing.pictures,
        "lines": standing.failures.lines,
        "scaler": trainee.scaler.state_dict(),
    }
    content = save(tensors, metadata={"key": key, "facts": json.dumps(facts)})

    def write(file: BinaryIO) -> None:
        file.write(content)

    atomic_write(path, write)


def read_checkpoint(path: Path, key: str, trainee: Trainee) -> Standing | None:
    """Go on from where a training with the same key was saved; None where there is none, or one of another key.

    Raises:
        ModelError: the file is damaged.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            about: dict[str, str] = file.metadata() or {}
            if about.get("key") != key:
                return None
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
        facts: dict[str, Any] = json.loads(about["facts"])
        trainee.restore(tensors, facts["scaler"])
        checks = [Check(**check) for check in facts["checks"]]
        failures = Failures(set(tensors[FAILED].tolist()), facts["lines"])
        return Standing(facts["step"], checks, facts["loss"], facts["pictures"], failures)
    except (SafetensorError, OSError, RecursionError, RuntimeError, ValueError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ModelError(f"{path} is damaged ({reason}): remove it to begin again.") from None

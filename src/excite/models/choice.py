"""Which classifier a command was told to use: names and files as the user typed them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from excite.models.folder import files_of
from excite.models.loading import DEFAULT, RANDOM, load
from excite.vocabulary import Labels

if TYPE_CHECKING:
    from excite.models.classifier import Classifier

__all__ = ["Choice"]


@dataclass(frozen=True)
class Choice:
    """A classifier by name and files, see `excite.load`; it can be loaded, written down and compared.

    Example:
        >>> Choice("efficientnet-lite0").load().layer
        'blocks.14'
    """

    model: str = DEFAULT
    weights: str | None = None
    labels: str | None = None
    size: int | None = None
    fully_convolutional: bool | None = None

    def load(self) -> Classifier:
        """The classifier itself."""
        return load(
            self.model,
            weights=self.weights,
            labels=None if self.labels is None else Labels.read(Path(self.labels)),
            size=self.size,
            fully_convolutional=self.fully_convolutional,
        )

    def key(self) -> dict[str, Any]:
        """What its answers depend on: the choice, and which state its files are in."""
        files = [name for name in (self.model, self.weights, self.labels) if name not in {None, RANDOM}]
        states = [file.stat() for name in files if name for file in files_of(name)]
        return {**asdict(self), "files": [[state.st_size, state.st_mtime_ns] for state in states]}

"""Where proposals come from: made for a picture, remembered on disk, or read from files that others made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from excite.errors import ProposalError

if TYPE_CHECKING:
    from pathlib import Path

    from PIL import Image

    from excite.grounding.proposals.base import Proposals

__all__ = ["Made", "Proposer", "Source", "checked"]


class Proposer(Protocol):
    """Makes proposals from what a picture shows. Its text (``repr``) names all its settings."""

    @property
    def name(self) -> str:
        """As users write it."""

    @property
    def version(self) -> int:
        """Counts up whenever the same picture and settings give other proposals than before."""

    def __call__(self, picture: Image.Image) -> Proposals:
        """The proposals, best first."""


class Source(Protocol):
    """Gives the proposals of any picture, wherever they come from."""

    def of(self, picture: Image.Image, name: str, path: Path | None = None) -> Proposals:
        """The proposals of a picture.

        Args:
            picture: What it shows.
            name: What it is called in its data set, such as ``000000123456.jpg``.
            path: Its file, where there is one.

        Raises:
            ProposalError: There are none for this picture.
        """


@dataclass(frozen=True)
class Made:
    """Proposals that are made anew each time."""

    proposer: Proposer

    def of(self, picture: Image.Image, name: str, path: Path | None = None) -> Proposals:  # noqa: ARG002 - only files need the path
        """The proposals of a picture."""
        return checked(self.proposer(picture), name)


def checked(proposals: Proposals, name: str) -> Proposals:
    """The proposals, if there are any.

    Raises:
        ProposalError: There are none.

    Example:
        >>> from PIL import Image
        >>> from excite.grounding.proposals import Hierarchy
        >>> len(checked(Hierarchy()(Image.new("RGB", (8, 8))), "black.png"))
        1
    """
    if len(proposals) == 0:
        raise ProposalError(f"no regions were proposed for the picture {name!r}: try other proposals.")
    return proposals

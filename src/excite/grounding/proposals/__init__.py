"""Regions of an image that may be something, from segmentations, edges or files.

A new proposer is one file here and one line in `PROPOSERS`.
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from excite.errors import DataError
from excite.grounding.proposals.base import Proposals, Segments
from excite.grounding.proposals.files import ProposalFiles
from excite.grounding.proposals.hierarchy import Hierarchy
from excite.grounding.proposals.opencv import EdgeBoxes, SelectiveSearch
from excite.grounding.proposals.sources import Cached, Proposer, Source, Uncached

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "PROPOSERS",
    "Cached",
    "EdgeBoxes",
    "Hierarchy",
    "ProposalFiles",
    "Proposals",
    "Proposer",
    "Segments",
    "SelectiveSearch",
    "Source",
    "Uncached",
    "find_proposer",
]

PROPOSERS: Mapping[str, Proposer] = {
    proposer.name: proposer for proposer in (Hierarchy(), EdgeBoxes(), SelectiveSearch())
}
"""What proposals can be made with, each with its default settings."""


def find_proposer(name: str | os.PathLike[str], cache: Path | None = None) -> Source:
    """Where proposals come from: a name from `PROPOSERS`, or the file or folder of precomputed ones.

    Args:
        name: The name, or the path. A folder called like a proposer is written with a slash: ``hierarchy/``.
        cache: A folder in which proposals that were made are kept for the next time.

    Raises:
        DataError: There is no such proposer and no such file, or it holds no proposals.

    Example:
        >>> find_proposer("hierarchy").proposer.count
        500
    """
    text = os.fspath(name)
    if isinstance(name, str) and text in PROPOSERS:
        return Uncached(PROPOSERS[text]) if cache is None else Cached(PROPOSERS[text], cache)
    if Path(text).exists():
        return ProposalFiles(Path(text))
    close = get_close_matches(text, PROPOSERS, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    known = ", ".join(PROPOSERS)
    raise DataError(f"there are no proposals {text!r}{hint}: use one of {known}, or a file or folder that is there.")

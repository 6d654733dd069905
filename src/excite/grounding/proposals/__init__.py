"""Candidate regions of an image, from segmentations, edges or files: a new proposer is one file and one name here."""

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from excite.errors import DataError
from excite.grounding.proposals.base import Proposals, Proposer, Segments, Source, Uncached
from excite.grounding.proposals.files import Cached, ProposalFiles
from excite.grounding.proposals.hierarchy import Hierarchy
from excite.grounding.proposals.opencv import EdgeBoxes, SelectiveSearch

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
"""The proposers by name, with their default settings."""


def find_proposer(name: str | os.PathLike[str], cache: Path | None = None) -> Source:
    """A proposer by name, with a folder as its cache; or the file or folder of precomputed proposals.

    A folder called like a proposer is written with a slash: ``hierarchy/``.
    """
    text = os.fspath(name)
    if isinstance(name, str) and text in PROPOSERS:
        return Uncached(PROPOSERS[text]) if cache is None else Cached(PROPOSERS[text], cache)
    if Path(text).exists():
        return ProposalFiles(Path(text))
    hint = "".join(f" (did you mean {close}?)" for close in get_close_matches(text, PROPOSERS, n=1))
    known = ", ".join(PROPOSERS)
    raise DataError(f"there are no proposals {text!r}{hint}: use one of {known}, or a file or folder that is there.")

"""How a worker on another machine gets ready: it must see the same files."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import torch

from excite.jobs.jobs import attempt

__all__ = ["joined"]

SHARED = "share it under the same name, by NFS or the like"


def joined(content: bytes, terms: dict[str, Any]) -> tuple[Any, str | None]:
    """The work, or None and what speaks against doing it here.

    Args:
        content: the work, pickled.
        terms: see `excite.jobs.ray_worker.Terms`.
    """
    torch.set_num_threads(1)
    try:
        os.chdir(terms["folder"])
    except OSError as error:
        return None, f"has no folder {terms['folder']!r} ({error.strerror}): {SHARED}, or start from one that is shared"
    if terms["token"] is not None and (complaint := _unshared(Path(terms["token"]), terms["word"])):
        return None, complaint
    try:
        work, task = pickle.loads(content), pickle.loads(terms["task"])  # noqa: S301 - from whoever started the run
    except (ImportError, AttributeError) as error:
        return None, f"cannot take the work ({error}): install there what is installed here"
    key = str(attempt(work.key, task))
    if key != terms["key"]:
        return None, f"does not see the pictures as this one does: {SHARED}"
    return work, None


def _unshared(token: Path, word: str) -> str | None:
    """Why files cannot be written where the token should be."""
    out = str(token.parent)
    try:
        seen = token.read_text(encoding="utf-8")
    except OSError:
        seen = None
    if seen != word:
        return f"does not see the folder {out!r} for results: {SHARED}, or use an --out that is shared"
    if not os.access(out, os.W_OK | os.X_OK):
        return f"may not write to the folder {out!r}: give it permission, or use another --out"
    return None

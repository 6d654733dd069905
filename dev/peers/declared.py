"""What a package offers: the names that its files declare. Nothing is imported for that."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peers.asking import Peer

__all__ = ["declares"]


def declares(peer: Peer, pattern: str) -> list[str]:
    """The public classes and functions of a package, and their methods, whose names match."""
    return sorted(name for name in _names(peer.package) if re.search(pattern, name, re.IGNORECASE))


@cache
def _names(package: str) -> frozenset[str]:
    origin = find_spec(package).origin
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in Path(origin).parent.rglob("*.py")]
    outer = [node for tree in trees for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))]
    inner = [part for node in outer for part in node.body if isinstance(part, ast.FunctionDef)]
    return frozenset(node.name for node in [*outer, *inner] if not node.name.startswith("_"))

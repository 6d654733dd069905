"""Lets the reference show our docstrings as they are meant."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from griffe import Alias, AliasResolutionError, Extension

if TYPE_CHECKING:
    from griffe import Module, Object

HEADING = re.compile(r"^Example:$", re.MULTILINE)


class Docstrings(Extension):
    """Reads "Example:" as "Examples:", and takes a function for what it is although its module has the same name."""

    def on_object(self, *, obj: Object, **_others: Any) -> None:
        """Called for every module, class, function and attribute that was read."""
        if obj.docstring is not None:
            obj.docstring.value = HEADING.sub("Examples:", obj.docstring.value)

    def on_package(self, *, pkg: Module, **_others: Any) -> None:
        """Called when all of it was read: ``excite.mwp`` is the function, not the module ``propagation.mwp``."""
        for name, member in list(pkg.members.items()):
            if member.is_alias and (found := _module(member)) is not None and name in found.members:
                pkg.set_member(name, Alias(name, f"{found.path}.{name}", parent=pkg))


def _module(alias: Alias) -> Module | None:
    """The module behind a name; None where it is something else, or something of another package."""
    try:
        return alias.final_target if alias.is_module else None
    except AliasResolutionError:
        return None

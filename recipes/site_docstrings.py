"""Lets the reference show "Example:" of our docstrings as code: the reader of docstrings knows "Examples:" only."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from griffe import Extension

if TYPE_CHECKING:
    from griffe import Object

HEADING = re.compile(r"^Example:$", re.MULTILINE)


class Examples(Extension):
    """Reads "Example:" as "Examples:"."""

    def on_object(self, *, obj: Object, **_others: Any) -> None:  # noqa: ANN401 - whatever griffe hands over
        """Called for every module, class, function and attribute that was read."""
        if obj.docstring is not None:
            obj.docstring.value = HEADING.sub("Examples:", obj.docstring.value)

"""What workers have to say, a line each."""

from __future__ import annotations

import sys

__all__ = ["note"]


def note(message: Warning | str, *_where: object, **_more: object) -> None:
    """A warning as one line, as the command itself shows its own; fit to be ``warnings.showwarning``.

    Example:
        >>> note("this picture is empty")
    """
    sys.stderr.write(f"excite: note: {message}\n")

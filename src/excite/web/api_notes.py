"""Warnings as notes of the answer that they belong to, though many threads answer at the same time.

`warnings.catch_warnings` changes the whole process, so that a thread would catch the warnings of another. Here the
one place that shows warnings is told once to look whose they are: the thread knows it from its context.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

__all__ = ["noting", "tell_warnings_in_answers"]

_NOTES: ContextVar[list[str] | None] = ContextVar("notes", default=None)


@contextmanager
def noting() -> Iterator[list[str]]:
    """The warnings of what is done in the block, by this thread or those that it hands its context to.

    Example:
        >>> with noting() as notes:
        ...     pass
        >>> notes
        []
    """
    notes: list[str] = []
    before = _NOTES.set(notes)
    try:
        yield notes
    finally:
        _NOTES.reset(before)


@contextmanager
def tell_warnings_in_answers() -> Iterator[None]:
    """As long as the block lasts, which is as long as the server runs, warnings go where they belong.

    A warning is shown each time and not only the first: the next person has not seen the first.
    """
    with warnings.catch_warnings():  # one thread, before any other begins and after they have ended
        show = warnings.showwarning

        def told(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            notes = _NOTES.get()
            if notes is None:
                show(message, category, *where, **more)
            elif (line := " ".join(str(message).split())) not in notes:
                notes.append(line)

        warnings.showwarning = told
        warnings.simplefilter("always", UserWarning)
        yield

"""The tables of words that come with the package."""

from __future__ import annotations

from importlib.resources import files

__all__ = ["rows"]


def rows(name: str) -> list[list[str]]:
    """The lines of a table, parted at their tabs, without its remarks.

    Example:
        >>> rows("imagenet.txt")[0]
        ['n01440764', 'tench', 'Tinca tinca']
    """
    text = files("excite.vocabulary").joinpath(name).read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines() if not line.startswith("#")]

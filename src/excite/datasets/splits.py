"""Parts of a data set, by name."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from excite.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["chosen_split"]


def chosen_split(split: str | None, splits: Sequence[str], folder: Path) -> str:
    """The split of this name, or the only one that begins so ("val" for "val2017"); None for the validation split.

    Example:
        >>> from pathlib import Path
        >>> chosen_split("val", ["train2017", "val2017"], Path("coco"))
        'val2017'
    """
    wanted = "val" if split is None else split
    begun = [one for one in splits if wanted and one.startswith(wanted)]
    if wanted in splits:
        return wanted
    if len(begun) == 1:
        return begun[0]
    if split is None and len(splits) == 1:
        return splits[0]
    near = get_close_matches(wanted, splits, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    known = ", ".join(splits) or "none"
    raise DataError(f"{str(folder)!r} has no split {wanted!r}{hint}: its splits are {known}")

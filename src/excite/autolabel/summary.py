"""What a run has done, as plain values and in words."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from excite.autolabel.run import Boxing

__all__ = ["summary"]


def summary(boxing: Boxing) -> dict[str, Any]:
    """How many boxes there are of what, in which files, and what one should know about them."""
    document = boxing.document()
    counts = Counter(found.concept for one in document.pictures for found in one.boxes)
    without = sum(not one.boxes for one in document.pictures)
    names = dict.fromkeys(name.split("/")[0] for name in boxing.content(document))
    return {
        "pictures": len(boxing.tasks),
        "folder": str(boxing.root),
        "boxes": counts.total(),
        "without": without,
        "format": boxing.kind,
        "files": [str(boxing.files.out / name) for name in names],
        "concepts": {name: counts[name] for name in document.categories},
        "notes": list(_notes(boxing, without)),
        "failures": boxing.failures,
    }


def _notes(boxing: Boxing, without: int) -> Iterator[str]:
    least = boxing.question.threshold
    if without and least:
        yield f"no box in {_pictures(without)}: nothing was probable enough; lower --at-least (now {least:g}) for more"
    elif without:
        yield f"no box in {_pictures(without)}: there is no evidence for what was looked for"
    turned = sum(record["turned"] for record in boxing.records.values())
    if turned:
        yield (
            f"{_pictures(turned)} stored on the side (EXIF): boxes are those of the upright picture; turn the files "
            "themselves for programs that do not"
        )
    if boxing.files.copied:
        yield f"{_pictures(boxing.files.copied)} copied into {str(boxing.files.out)!r}: links cannot be made there"


def _pictures(count: int) -> str:
    return f"{count} picture{'s' if count != 1 else ''}"

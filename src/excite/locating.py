"""One box for each concept that a classifier sees in a picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from excite.api import attend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from excite.api import ImageSource
    from excite.models import Classifier
    from excite.session import Cue

__all__ = ["ALPHA", "METHOD", "Located", "locate"]

METHOD, ALPHA = "extent", 0.5  # the best in docs/localization.md, and what held-out pictures chose there


@dataclass(frozen=True)
class Located:
    """Where a concept is in a picture.

    Attributes:
        concept: what was asked for.
        probability: the classifier's own confidence that it is there at all.
        box: half-open ``(x0, y0, x1, y1)`` in pixels; None where there is no evidence.
    """

    concept: str
    probability: float
    box: tuple[int, int, int, int] | None


def locate(
    classifier: Classifier,
    image: ImageSource,
    concepts: Cue | Sequence[Cue] | None = None,
    *,
    method: str = METHOD,
    layer: str | None = None,
    alpha: float = ALPHA,
) -> list[Located]:
    """A box around the main object of each concept.

    For one object a concept and picture: of several that lie apart, the one with the largest region.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        image: a picture, or the path of one, as in `excite.attend`.
        concepts: what to look for, as in `excite.attend`; None for its best findings.
        method: how to make the map.
        layer: where to read it; None: where it should be.
        alpha: the threshold of the box, in means of the map.

    Example:
        >>> [(found.concept, found.box) for found in excite.locate(classifier, "cat.jpg", ["tabby"])]  # doctest: +SKIP
        [('tabby', (12, 30, 200, 180))]
    """
    maps = attend(classifier, image, concepts, method=method, layer=layer)
    return [Located(found.concept, found.probability or 0.0, found.box(alpha)) for found in maps]

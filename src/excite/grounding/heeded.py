"""Which words of a phrase had a say in where it leads, beside those the classifier looked for, and which had none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from excite.grounding.hints import hinted
from excite.vocabulary import Reading
from excite.vocabulary.sentences import tokens_of

if TYPE_CHECKING:
    from PIL import Image

    from excite.vocabulary import ColourWord, PlaceWord

    Span = tuple[int, int]

__all__ = ["unheeded", "weighing"]


def weighing(reading: Reading, picture: Image.Image, *, hints: bool = True) -> tuple[Span, ...]:
    """Where the words stand that weigh the map of a phrase: not all for places do ("second", "left of the car").

    Each place is tried on an even map, so that there is one place only that knows what they do.

    Args:
        reading: of the phrase.
        picture: that the phrase is about.
        hints: whether such words were asked at all.

    Example:
        >>> from PIL import Image
        >>> from excite.vocabulary import Labels, read_phrase
        >>> reading = read_phrase("second red car from the left", Labels(["car"]))
        >>> weighing(reading, Image.new("RGB", (8, 8)))
        ((7, 10), (24, 28))
    """
    if not hints:
        return ()
    even = np.ones((4, 4))
    alone = ((place, Reading(reading.text, places=(place,))) for place in reading.places)
    places = [place for place, one in alone if (hinted(even, one, picture) != even).any()]
    return _spans(*places, *reading.colours)


def unheeded(reading: Reading, weigh: tuple[Span, ...]) -> tuple[Span, ...]:
    """Where the words stand that say something, but had no say: those skipped, and hints that weighed nothing.

    Args:
        reading: of the phrase.
        weigh: where the words stand that weighed its map.

    Example:
        >>> from excite.vocabulary import Labels, read_phrase
        >>> unheeded(read_phrase("second shiny red car", Labels(["car"])), ((13, 16),))
        ((0, 6), (7, 12))
    """
    looks = _spans(*reading.places, *reading.colours)
    heeded = {*weigh, *((word.start, word.end) for word in reading.words)}
    taken = {*looks, *heeded}
    free = [token for token in tokens_of(reading.text) if not _meets(taken, token.start, token.end)]
    missing = list(reading.skipped)
    spans = [span for span in looks if span not in heeded]
    for token in free:  # the words skipped stand in the order of the phrase, with stop words between
        if missing and token.text == missing[0]:
            spans.append((token.start, token.end))
            del missing[0]
    return tuple(sorted(spans))


def _spans(*words: PlaceWord | ColourWord) -> tuple[Span, ...]:
    return tuple(sorted((word.start, word.end) for word in words))


def _meets(spans: set[Span], start: int, end: int) -> bool:
    return any(first < end and start < last for first, last in spans)

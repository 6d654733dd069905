"""Which words of a phrase had no say in where it leads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.vocabulary.sentences import tokens_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from excite.vocabulary import ColourWord, PlaceWord, Reading

    Span = tuple[int, int]

__all__ = ["span_of", "unheeded"]


def unheeded(reading: Reading, hints: Sequence[PlaceWord | ColourWord]) -> tuple[Span, ...]:
    """Where the words stand that say something, but had no say: those skipped, and hints that weighed nothing.

    Args:
        reading: of the phrase.
        hints: the words that weighed its map.

    Example:
        >>> from excite.vocabulary import Labels, read_phrase
        >>> unheeded(read_phrase("second shiny car", Labels(["car"])), ())
        ((0, 6), (7, 12))
    """
    looks = [*map(span_of, reading.places), *map(span_of, reading.colours)]
    had_say = {*map(span_of, hints), *((word.start, word.end) for word in reading.words)}
    taken = {*looks, *had_say}
    free = [token for token in tokens_of(reading.text) if not _meets(taken, token.start, token.end)]
    missing = list(reading.skipped)
    spans = [span for span in looks if span not in had_say]
    for token in free:  # the words skipped stand in the order of the phrase, with stop words between
        if missing and token.text == missing[0]:
            spans.append((token.start, token.end))
            del missing[0]
    return tuple(sorted(spans))


def span_of(word: PlaceWord | ColourWord) -> Span:
    """Where a word stands in its phrase."""
    return word.start, word.end


def _meets(spans: set[Span], start: int, end: int) -> bool:
    return any(first < end and start < last for first, last in spans)

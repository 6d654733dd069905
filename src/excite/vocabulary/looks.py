"""Words of a phrase that say where a thing is or what colour it has: nobody's output unit, but good to know."""

from __future__ import annotations

__all__ = ["COLOURS", "PLACES", "THINGS_TOO"]


def _by_word(table: str) -> dict[str, str]:
    """Lines of a name and of the words for it, as a table of these words."""
    lines = (line.split() for line in table.strip().splitlines())
    return {word: name for name, *words in lines for word in (name, *words)}


PLACES = _by_word(
    """
    left leftmost lefthand lefty
    right rightmost righthand righty
    top upper uppermost topmost highest
    bottom lower lowermost lowest
    middle center centre mid central centered
    front foreground frontmost closest nearest closer nearer
    back background rear backmost far farthest furthest farther further distant
    corner
    edge
    first 1st
    second 2nd
    third 3rd
    fourth 4th
    fifth 5th
    last
    largest biggest bigger larger big large huge tallest taller
    smallest smaller small little tiny littlest shortest shorter
    """
)
"""Each word for a place, an order or a size, and what it is called here."""

COLOURS = _by_word(
    """
    red crimson scarlet maroon
    orange
    yellow gold golden
    green olive
    blue navy teal turquoise
    purple violet lavender
    pink magenta
    brown tan beige
    black
    white
    grey gray silver
    """
)
"""Each word for a colour, and what the colour is called here."""

THINGS_TOO = frozenset({"orange", "gold", "silver", "olive", "lavender", "violet"})
"""Words for colours that are also things: right before another word they are the colour only ("orange shirt")."""

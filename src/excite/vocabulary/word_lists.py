"""Lists of English words: stop words, words for positions and colours."""

from __future__ import annotations

GRAMMAR = frozenset(
    """
a an the this that these those such same another other others each every either neither both all any some no none not
and or but nor so yet if then than because although though unless until whether
about above across after against along alongside amid among amongst around as at atop away before behind below beneath
beside besides between beyond by down during except for from in inside into near nearby of off on onto opposite out
outside over past per round since through throughout to together toward towards under underneath up upon via with within
without apart ahead forward backward
i me my mine myself you your yours yourself he him his himself she her hers herself it its itself we us our ours
ourselves they them their theirs themselves one ones oneself who whom whose which what someone somebody something anyone
anything everyone everything nobody nothing there here where when while why how
am is are was were be been being do does did done doing have has had having can could may might must shall should will
would get gets getting got let lets cannot
don't doesn't didn't isn't aren't wasn't weren't can't couldn't won't wouldn't hasn't haven't it's that's there's
they're i'm you're
""".split()
)

FILLERS = frozenset(
    """
also almost already always just only even ever still again very really quite rather too enough well much many more most
few fewer less least lot lots several various different multiple numerous couple pair bunch group number set kind type
types sort piece pieces part parts
zero two three four five six seven eight nine ten first second third dozen half
picture pictures photo photos photograph photographs image images view views shot scene caption
close closeup close-up next front back top bottom side sides left right middle center edge end
show shows showing shown see sees seen seem seems appear appears appearing look looks looking like use used uses using
make makes making made take takes taking taken give go goes going come comes coming put puts
thing things way ready able full
""".split()
)

STOP_WORDS = GRAMMAR | FILLERS
"""English articles, prepositions, conjunctions, pronouns and auxiliary verbs; numerals; words about the image itself
(image, view), positions in it (front, side), amounts (several, bunch), and general verbs (show, take). Words for
visible things stay, also colours, sizes and activities: red, large, sitting."""


def _by_word(table: str) -> dict[str, str]:
    """Lines of a name and its words, as a table from word to name."""
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
"""Words for a place, an order or a size, with one name for each meaning."""

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
"""Words for colours, with one name for each colour."""

THINGS_TOO = frozenset({"orange", "gold", "silver", "olive", "lavender", "violet"})
"""Colours that are also things: right before another word they are the colour only ("orange shirt")."""

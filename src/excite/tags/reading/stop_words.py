"""Words of captions that say nothing about what is seen: they are no tags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["STOP_WORDS", "read_stop_words"]

GRAMMAR = """
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

FILLERS = """
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

STOP_WORDS = frozenset(GRAMMAR) | frozenset(FILLERS)
"""English articles, prepositions, conjunctions, pronouns and auxiliary verbs; numerals; words about the picture itself
(picture, view), about places in it (front, next, side), about amounts (several, couple, bunch), and verbs that go with
anything (show, look, take). Words for what can be seen stay, also colours, sizes and doings: red, large, sitting."""

LIMIT = 2**20  # bytes of a file of stop words


def read_stop_words(path: Path) -> frozenset[str]:
    """Stop words from a file, one a line, in small letters.

    Raises:
        DataError: the file cannot be read, or is no list of words.

    Example:
        >>> read_stop_words(Path("stop.txt"))                               # doctest: +SKIP
        frozenset({'the', 'a'})
    """
    try:
        with path.open("rb") as file:
            content = file.read(LIMIT + 1)
        text = content.decode()
    except OSError as error:
        raise DataError(f"cannot read the stop words {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise DataError(f"the stop words {path} are not UTF-8 text: write one word a line") from None
    if len(content) > LIMIT:
        raise DataError(f"{path} is too long for a list of stop words: write one word a line")
    return frozenset(word for line in text.splitlines() if (word := line.strip().casefold()))

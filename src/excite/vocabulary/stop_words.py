"""Words of English sentences that say nothing about what is seen."""

from __future__ import annotations

__all__ = ["GRAMMAR", "STOP_WORDS"]

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
"""English articles, prepositions, conjunctions, pronouns and auxiliary verbs; numerals; words about the picture itself
(picture, view), about places in it (front, next, side), about amounts (several, couple, bunch), and verbs that go with
anything (show, look, take). Words for what can be seen stay, also colours, sizes and doings: red, large, sitting."""

"""Which regions of an image phrases refer to."""

from excite.grounding.ground import Grounded, GroundingSession, Region, ground
from excite.grounding.phrase_maps import PhraseMap, PhraseSession, map_phrases
from excite.grounding.scoring import Scorer

__all__ = ["Grounded", "GroundingSession", "PhraseMap", "PhraseSession", "Region", "Scorer", "ground", "map_phrases"]

"""Phrase grounding: from phrases to regions of an image."""

from excite.errors import renamed
from excite.grounding.ground import Grounded, GroundingSession, Region, ground
from excite.grounding.phrase_maps import PhraseMap, PhraseSession, map_phrases
from excite.grounding.scoring import Scorer

__all__ = ["Grounded", "GroundingSession", "PhraseMap", "PhraseSession", "Region", "Scorer", "ground", "map_phrases"]

__getattr__ = renamed(  # deprecated since 0.2
    __name__, {"Gaze": "PhraseSession", "Study": "GroundingSession", "gaze": "map_phrases"}
)

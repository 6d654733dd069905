"""Phrase grounding: from phrases to regions of an image."""

from excite.grounding.ground import Grounded, Region, Study, ground
from excite.grounding.phrase_maps import Gaze, PhraseMap, gaze
from excite.grounding.scoring import Scorer

__all__ = ["Gaze", "Grounded", "PhraseMap", "Region", "Scorer", "Study", "gaze", "ground"]

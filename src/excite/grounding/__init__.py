"""Which regions of an image phrases refer to."""

from excite.grounding.ground import Grounded, Region, Study, ground
from excite.grounding.phrase_maps import Gaze, PhraseMap, gaze
from excite.grounding.scoring import Scorer

__all__ = ["Gaze", "Grounded", "PhraseMap", "Region", "Scorer", "Study", "gaze", "ground"]

"""Where in this image is the evidence for that concept? Excitation Backprop for any CNN.

>>> classifier = excite.load()                                              # doctest: +SKIP
>>> for found in excite.attend(classifier, "photo.jpg", ["tabby", "remote"]):   # doctest: +SKIP
...     print(found.concept, found.probability, found.point(), found.box())
...     found.save(f"{found.concept}.png")
"""

__version__ = "0.1.0"  # before the imports: the modules below write it into their files

from excite.api import ExcitationBackprop, Located, attend, attend_batch, attribute, explain_func, locate
from excite.attention import AttentionMap, AttentionMaps, compare
from excite.errors import ExciteError
from excite.errors import renamed as _renamed
from excite.export.compiled import Compiled, compile  # noqa: A004 - the word that torch and re have for it, too
from excite.grounding import Grounded, Region, ground
from excite.methods import METHODS
from excite.models import MODELS, Classifier, load, wrap
from excite.propagation import absorbing_chain, mwp, sample_winners, transition_matrix, winner_take_all
from excite.session import Session, SessionCache

__all__ = [
    "METHODS",
    "MODELS",
    "AttentionMap",
    "AttentionMaps",
    "Classifier",
    "Compiled",
    "ExcitationBackprop",
    "ExciteError",
    "Grounded",
    "Located",
    "Region",
    "Session",
    "SessionCache",
    "absorbing_chain",
    "attend",
    "attend_batch",
    "attribute",
    "compare",
    "compile",
    "explain_func",
    "ground",
    "load",
    "locate",
    "mwp",
    "sample_winners",
    "transition_matrix",
    "winner_take_all",
    "wrap",
]

__getattr__ = _renamed(__name__, {"Memory": "SessionCache"})  # deprecated since 0.2

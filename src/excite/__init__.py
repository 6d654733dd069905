"""Where in this image is the evidence for that concept? Excitation Backprop for any CNN.

>>> classifier = excite.load()                                              # doctest: +SKIP
>>> for found in excite.attend(classifier, "photo.jpg", ["tabby", "remote"]):   # doctest: +SKIP
...     print(found.concept, found.probability, found.point(), found.box())
...     found.save(f"{found.concept}.png")

``import excite`` loads neither torch nor a module of its own: each name below is imported when it is first used.
"""

import typing as _typing

from excite.errors import lazy as _lazy
from excite.errors import renamed as _renamed

if _typing.TYPE_CHECKING:
    from excite.api import ExcitationBackprop, Located, attend, attend_batch, attribute, explain_func, locate
    from excite.attention import AttentionMap, AttentionMaps, compare
    from excite.errors import ExciteError
    from excite.export.compiled import Compiled, compile  # noqa: A004 - the word that torch and re have for it, too
    from excite.grounding.ground import Grounded, Region, ground
    from excite.methods import METHODS
    from excite.models import MODELS, Classifier, load, wrap
    from excite.propagation import absorbing_chain, mwp, sample_winners, transition_matrix, winner_take_all
    from excite.session import Session
    from excite.session_cache import SessionCache

__version__ = "0.1.0"

DEFAULT_MODEL = "words"
"""The classifier of `excite.load()`, the commands and the page, where none is named: the one that knows most words."""

__all__ = [
    "DEFAULT_MODEL",
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

__getattr__, __dir__ = _lazy(
    __name__,
    {
        "api": "ExcitationBackprop Located attend attend_batch attribute explain_func locate",
        "attention": "AttentionMap AttentionMaps compare",
        "errors": "ExciteError",
        "export.compiled": "Compiled compile",
        "grounding": "Grounded Region ground",
        "methods": "METHODS",
        "models": "MODELS Classifier load wrap",
        "propagation": "absorbing_chain mwp sample_winners transition_matrix winner_take_all",
        "session": "Session",
        "session_cache": "SessionCache",
    },
    _renamed(__name__, {"Memory": "SessionCache"}),  # deprecated since 0.2
)

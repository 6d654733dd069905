"""A picture that is asked for phrases again and again: proposals and the look at it are made once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from excite.errors import ConceptError
from excite.grounding.ground import GAMMA, METHOD, MOST, Grounded, rank
from excite.grounding.phrase_maps import SIDE, Gaze
from excite.grounding.scoring import TRUST, Scorer
from excite.methods import find_method
from excite.propagation import held_bytes
from excite.vocabulary import read_phrase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PIL import Image

    from excite.models import Classifier
    from excite.proposals import Proposals

__all__ = ["Study"]


class Study:
    """As `excite.ground`, for phrases that come one after the other. Several threads may ask.

    Args:
        classifier: from `excite.load` or `excite.wrap`.
        picture: in mode RGB.
        proposals: of this picture.
        method: a name from `excite.METHODS`.
        layer: where to read it; None for the classifier's own best.
        trust: see `excite.ground`.
        side: the shorter side of the picture as the classifier sees it.

    Example:
        >>> study = Study(excite.load("words"), picture, find_proposer("hierarchy").of(picture))  # doctest: +SKIP
        >>> study.ground(["a dog"])[0].regions[0].box, study.ground(["the left dog"])             # doctest: +SKIP
    """

    def __init__(
        self,
        classifier: Classifier,
        picture: Image.Image,
        proposals: Proposals,
        *,
        method: str = METHOD,
        layer: str | None = None,
        trust: float = TRUST,
        side: int = SIDE,
    ) -> None:
        self._method = find_method(method)
        self._gaze = Gaze(classifier, picture, [self._method], layer=layer, side=side)
        self._scorer = Scorer(proposals, trust)
        self._module = classifier.module
        self._lock = threading.Lock()  # a forward pass serves one question at a time

    def ground(
        self, phrases: Sequence[str], *, gamma: float = GAMMA, hints: bool = True, most: int = MOST
    ) -> list[Grounded]:
        """The regions that phrases refer to, see `excite.ground`.

        Raises:
            ConceptError: a phrase is blank, or there is none.
        """
        if not phrases or not all(text.strip() for text in phrases):
            raise ConceptError("a phrase is blank: write what to look for, such as 'a man in a red hat'")
        readings = [read_phrase(text, self._gaze.labels) for text in phrases]
        with self._lock:
            maps = self._gaze.maps(self._method, readings, hints=hints)
        return [
            Grounded(text, rank(self._scorer, one, gamma, most), one) for text, one in zip(phrases, maps, strict=True)
        ]

    @property
    def size(self) -> int:
        """About how many bytes it holds."""
        arrays = self._scorer.proposals.arrays().values()
        return held_bytes(self._module, self._gaze.look.view.passes()) + sum(each.nbytes for each in arrays)

"""What is asked of every picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from excite.errors import MethodError
from excite.methods import find_method
from excite.models import Choice
from excite.readouts.box import DEFAULT_ALPHA, checked_alpha

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Question"]


@dataclass(frozen=True)
class Question:
    """What is asked of every picture."""

    model: Choice
    concepts: tuple[str, ...] | None  # None: the classifier's own findings
    layers: tuple[str, ...] | None  # None: the classifier's own best
    method: str
    against: tuple[str, ...]
    alpha: float = DEFAULT_ALPHA  # the threshold of the boxes, in means of the map

    @classmethod
    def asked(
        cls,
        *,
        model: Choice | str,
        concepts: Sequence[str],
        layers: Sequence[str] | None = None,
        method: str | None = None,
        contrast: bool | None = None,
        against: Sequence[str] | None = None,
        alpha: float = DEFAULT_ALPHA,
    ) -> Question:
        """The question behind the options of a command."""
        if method is not None and contrast is not None:
            raise MethodError(
                "--method already says whether to contrast: give either --method or --contrast/--no-contrast"
            )
        name = method or ("mwp" if contrast is False else "c-mwp")
        return cls(
            model=Choice(model) if isinstance(model, str) else model,
            concepts=tuple(concepts) or None,
            layers=tuple(layers or ()) or None,
            method=find_method(name).name,
            against=tuple(against or ()),
            alpha=checked_alpha(alpha),
        )

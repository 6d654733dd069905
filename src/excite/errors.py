"""Every error a user can meet: each message says what was wrong and what to do about it.

And `renamed`, for names of the public API that have changed.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "ConceptError",
    "DataError",
    "ExciteError",
    "FetchError",
    "ImageError",
    "LayerError",
    "LostSignalWarning",
    "MethodError",
    "ModelError",
    "NoRuleError",
    "NumberError",
    "ProposalError",
    "ReplacedOperatorsWarning",
    "SignalError",
    "SizeError",
    "UnverifiedWarning",
    "VerificationError",
]


LONGEST_WORD = 300
LONGEST = 1000


class ExciteError(Exception):
    r"""The parent of all errors that excite raises on purpose.

    Messages quote files, which may hold anything. So each is one line that a terminal can show, whatever it quotes.

    Example:
        >>> print(ExciteError("a.csv: no box but 'x\0\ny'"))
        a.csv: no box but 'x\x00 y'
        >>> len(str(ExciteError("a" * 1_000_000)))
        283
    """

    def __str__(self) -> str:
        line = " ".join(piece.strip() for piece in super().__str__().splitlines())
        words = (_shortened(word, LONGEST_WORD, 220, 60) for word in _shown(line).split(" "))
        return _shortened(" ".join(words), LONGEST, 800, 150)


def _shown(line: str) -> str:
    """A line without signs that a terminal would act upon, or cannot show."""
    if line.isprintable():
        return line
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in line)


def _shortened(text: str, longest: int, first: int, last: int) -> str:
    return text if len(text) <= longest else f"{text[:first]}...{text[-last:]}"


class NoRuleError(ExciteError):
    """An operation between the layer and the output has no top-down rule."""


class VerificationError(NoRuleError):
    """The output does not respond to a layer as the graph says: a part of its values passes where nothing is seen."""


class LayerError(ExciteError):
    """The layer does not exist, does not feed the output, or cannot be read as asked."""


class SignalError(ExciteError):
    """The top-down signal does not fit the output, or asks for nothing."""


class NumberError(ExciteError):
    """A number is NaN or infinite: in the input, in the weights, in a layer or in the top-down pass."""


class SizeError(ExciteError):
    """The answer would not fit in memory."""


class ConceptError(ExciteError):
    """The classifier knows no such concept."""


class MethodError(ExciteError):
    """There is no such method."""


class ModelError(ExciteError):
    """There is no such classifier, or it cannot be used."""


class ImageError(ExciteError):
    """The image cannot be read."""


class DataError(ExciteError):
    """A data set, its annotations or one of its samples cannot be used."""


class ProposalError(DataError):
    """An image has no proposals: callers can count such images and go on."""


class FetchError(ExciteError):
    """A file cannot be had from the net."""


class ReplacedOperatorsWarning(UserWarning):
    """torchvision's compiled operators do not fit this torch and were left out."""


class LostSignalWarning(UserWarning):
    """Hardly any of the top-down signal arrived at the layer: the map says next to nothing."""


class UnverifiedWarning(UserWarning):
    """The output's response to a layer could not be compared with what passes through the graph."""


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """A module's ``__getattr__`` that keeps old names for one version: each gives the new one, with a warning.

    Args:
        module: its ``__name__``.
        names: the new name of each old one.

    Example:
        >>> renamed("excite.errors", {"Fault": "ExciteError"})("Fault")  # doctest: +SKIP
        <class 'excite.errors.ExciteError'>
    """

    def find(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} is now {module}.{names[name]}", DeprecationWarning, stacklevel=2)
        return getattr(sys.modules[module], names[name])

    return find

"""Every error a user can meet; and `lazy` and `renamed`, for names of packages imported late or changed."""

import pkgutil
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module

__all__ = [
    "ConceptError", "DataError", "ExciteError", "FetchError", "ImageError", "LayerError", "LostSignalWarning",
    "MethodError", "ModelError", "NoRuleError", "NumberError", "ProposalError", "ReplacedOperatorsWarning",
    "SignalError", "SizeError", "SplitError", "TrainingModeWarning", "UnknownPreprocessWarning", "UnverifiedWarning",
    "VerificationError",
]  # fmt: skip


LONGEST_WORD = 300
LONGEST = 1000


class ExciteError(Exception):
    r"""The parent of all errors that excite raises on purpose.

    Messages quote files, which may hold anything. So each is `one_line` that a terminal can show, whatever it quotes.

    Example:
        >>> print(ExciteError("a.csv: no box but 'x\0\ny'"))
        a.csv: no box but 'x\x00 y'
        >>> len(str(ExciteError("a" * 1_000_000)))
        283
    """

    def __str__(self) -> str:
        return one_line(super().__str__())


def visible(text: str) -> str:
    r"""The text as one line on which nothing acts: every character that is no printable one is written as an escape.

    These are control and format characters (colours, line ends, the direction of writing), odd blanks, and the lone
    surrogates in which Python keeps the bytes of a file name that are no UTF-8.

    Example:
        >>> print(visible("\x1b[31mred\x1b[0m\n" + chr(0x202E)))
        \x1b[31mred\x1b[0m\n\u202e
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def one_line(message: str) -> str:
    r"""A message, which may have several lines and quote anything, as one visible line of at most 1000 characters.

    Example:
        >>> one_line("no box:\n  a\x07b")
        'no box: a\\x07b'
    """
    line = " ".join(piece.strip() for piece in message.splitlines())
    words = (shortened(word) for word in visible(line).split(" "))
    return shortened(" ".join(words), LONGEST, 800, 150)


def shortened(text: str, longest: int = LONGEST_WORD, first: int = 220, last: int = 60) -> str:
    """A text without its middle, if it is longer than that."""
    return text if len(text) <= longest else f"{text[:first]}...{text[-last:]}"


IN_PYTHON = r"(?<![\w/.])(?:excite\.(?:attend|ground|load|mwp|wrap)\b|wrap\(|Preprocess\(|fully_convolutional=|verify=)"
IN_A_SHELL = r"`excite |(?<!\S)--[a-z]|pip install "
CLAUSES = re.compile(r"(, or |, and |[,;:.] |(?<=\?) )")


def without_clauses(message: str, pattern: str) -> str:
    """A message without the brackets and clauses, but for the first, in which a pattern occurs.

    Messages say what to do in Python and in a shell. The commands leave the former out, the page of a server both.

    Example:
        >>> without_clauses("No label is called 'x'. `excite ls labels` lists all 80.", IN_A_SHELL)
        "No label is called 'x'."
        >>> without_clauses("it has no places: name a layer, or use excite.mwp for its neurons", IN_PYTHON)
        'it has no places: name a layer'
    """
    first, *others = CLAUSES.split(re.sub(rf"\s+\([^()]*(?:{pattern})[^()]*\)", "", message))
    pairs = zip(others[::2], others[1::2], strict=True)
    kept = first + "".join(end + clause for end, clause in pairs if not re.search(pattern, clause))
    return message if kept == message else kept.rstrip(" .,;:") + "." * (message.endswith(".") and kept[-1:] != "?")


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


class SplitError(DataError):
    """The data set has no such split."""


class ProposalError(DataError):
    """An image has no proposals: callers can count such images and go on."""


class FetchError(ExciteError):
    """A file cannot be had from the net."""


class ReplacedOperatorsWarning(UserWarning):
    """torchvision's compiled operators do not fit this torch and were left out."""


class LostSignalWarning(UserWarning):
    """Hardly any of the top-down signal arrived at the layer: the map says next to nothing."""


class TrainingModeWarning(UserWarning):
    """The network is in training mode, where dropout or batch statistics change its answers."""


class UnknownPreprocessWarning(UserWarning):
    """The network does not say how its images are normalised: the usual mean and deviation are taken."""


class UnverifiedWarning(UserWarning):
    """The output's response to a layer could not be compared with what passes through the graph."""


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """The ``__getattr__`` of a module that keeps old names for one version: each gives the new one, with a warning."""

    def find(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} is now {module}.{names[name]}", DeprecationWarning, stacklevel=2)
        return getattr(sys.modules[module], names[name])

    return find


def lazy(
    package: str, homes: Mapping[str, str], otherwise: Callable[[str], object]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a package whose names and modules are imported when first used.

    Args:
        package: its name.
        homes: the modules below it, each with the names to import from it, separated by blanks.
        otherwise: the answer to any other name.
    """
    where = {name: f"{package}.{home}" for home, names in homes.items() for name in names.split()}
    this = sys.modules[package]
    inner = {module.name for module in pkgutil.iter_modules(this.__path__) if not module.name.startswith("_")}

    def find(name: str) -> object:
        if name in inner:
            return import_module(f"{package}.{name}")
        if name not in where:
            return otherwise(name)
        found = getattr(import_module(where[name]), name)
        setattr(this, name, found)
        return found

    return find, lambda: sorted({*vars(this), *where, *inner})

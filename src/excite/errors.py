"""Every error a user can meet: each message says what was wrong and what to do about it."""

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
]


class ExciteError(Exception):
    """The parent of all errors that excite raises on purpose."""


class NoRuleError(ExciteError):
    """An operation between the layer and the output has no top-down rule."""


class LayerError(ExciteError):
    """The layer does not exist, does not feed the output, or cannot be read as asked."""


class SignalError(ExciteError):
    """The top-down signal does not fit the output, or asks for nothing."""


class NumberError(ExciteError):
    """A number is NaN or infinite: in the input, in the weights, in a layer or on the way down."""


class SizeError(ExciteError):
    """The answer would not fit in memory."""


class ConceptError(ExciteError):
    """The classifier knows no such concept."""


class MethodError(ExciteError):
    """There is no such method."""


class ModelError(ExciteError):
    """There is no such classifier, or it cannot be used."""


class ImageError(ExciteError):
    """The picture cannot be read."""


class DataError(ExciteError):
    """A data set, its annotations or one of its samples cannot be used."""


class ProposalError(DataError):
    """A picture has no proposals: callers can count such pictures and go on."""


class FetchError(ExciteError):
    """A file cannot be had from the net."""


class ReplacedOperatorsWarning(UserWarning):
    """torchvision's compiled operators do not fit this torch and were left out."""


class LostSignalWarning(UserWarning):
    """Hardly any of the top-down signal arrived at the layer: the map says next to nothing."""

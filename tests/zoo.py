"""torchvision and timm for the tests, where it is no news that their compiled operators are left out."""

import warnings

from excite.errors import ModelError, ReplacedOperatorsWarning
from excite.models import sources as packages


def torchvision_models():
    """The module torchvision.models; ImportError without it."""
    return _imported(packages.torchvision_models)


def timm_models():
    """The package timm; ImportError without it."""
    return _imported(packages.timm_models)


def _imported(load):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReplacedOperatorsWarning)
            return load()
    except ModelError as error:
        raise ImportError(str(error)) from error

"""Corpora of tagged images: reading, statistics, and the cleaning of the paper's appendix."""

from importlib import import_module
from typing import Any

from excite.errors import DataError


def package(name: str) -> Any:
    """A package of the extra ``tags``; a DataError says how to get it."""
    try:
        return import_module(name)
    except ImportError:
        raise DataError(f"tags need the package {name.partition('.')[0]}: pip install 'excite[tags]'") from None

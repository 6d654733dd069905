"""What torch says about itself while a graph is written down is no news for the user."""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["quietly"]

LOGGERS = ("torch._subclasses.fake_tensor", "torch.onnx", "torch.export", "onnxscript")


@contextmanager
def quietly() -> Iterator[None]:
    """Within, torch's notes about old names of its own and about ways it tried in vain are not shown.

    Example:
        >>> with quietly():
        ...     warnings.warn("an old name", FutureWarning)
    """
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        with warnings.catch_warnings():
            for kind in (FutureWarning, DeprecationWarning, UserWarning):
                warnings.simplefilter("ignore", kind)
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)

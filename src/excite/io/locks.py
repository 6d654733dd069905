"""Moved to `excite.io.files`."""

from excite.io.files import Lock, locked

__all__ = ["Lock", "locked"]

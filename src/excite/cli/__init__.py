"""The command line: a module for each command, with its options and one call."""

from excite.cli.app import main

__all__ = ["main"]

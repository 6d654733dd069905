"""The command line: one file for each command, arguments and one call, no logic of its own."""

from excite.cli.app import main

__all__ = ["main"]

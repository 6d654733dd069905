"""``excite train``: teach a classifier the tags of a corpus."""

from __future__ import annotations

from excite.cli.groups import group

__all__ = ["app"]

app = group("Train classifiers.")

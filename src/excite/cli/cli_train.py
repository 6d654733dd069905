"""``excite train``: teach a classifier."""

from __future__ import annotations

from excite.cli import train as train_tags
from excite.cli.groups import group

__all__ = ["app"]

app = group("Train classifiers on corpora of any size.")
app.command("tags", epilog=train_tags.EXAMPLES)(train_tags.command)

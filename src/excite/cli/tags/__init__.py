"""``excite tags``: from a raw corpus of tagged images to one worth learning from."""

from __future__ import annotations

from excite.cli.options import gone, group
from excite.cli.tags.explore import STATS_EXAMPLES, stats_command
from excite.cli.tags.prepare import (
    CAPTIONS_EXAMPLES,
    CLEAN_EXAMPLES,
    SHARDS_EXAMPLES,
    captions_command,
    clean_command,
    shards_command,
)

__all__ = ["app"]

app = group("Clean a corpus of images with tags, and look at its dictionary.")
app.command("clean", epilog=CLEAN_EXAMPLES)(clean_command)
app.command("captions", epilog=CAPTIONS_EXAMPLES)(captions_command)
app.command("stats", epilog=STATS_EXAMPLES)(stats_command)
app.command("shards", epilog=SHARDS_EXAMPLES)(shards_command)
gone(app, "generate", "tags generate is a tool of the repository now: run `python dev/generate_tags.py` in a checkout")
gone(
    app,
    "show",
    "there is no tags show any more: ask duckdb, `WHERE list_contains(tags, 'TAG')`",
)

"""``excite tags``: from a raw corpus of tagged pictures to one worth learning from."""

from __future__ import annotations

from excite.cli import tags_clean, tags_generate
from excite.cli.groups import group

__all__ = ["app"]

app = group("Clean a corpus of pictures with tags, and look at its dictionary.")
app.command("clean", epilog=tags_clean.EXAMPLES)(tags_clean.command)
app.command("generate", epilog=tags_generate.EXAMPLES)(tags_generate.command)

"""``excite tags``: from a raw corpus of tagged pictures to one worth learning from."""

from __future__ import annotations

from excite.cli.groups import group
from excite.cli.tags import (
    explore as tags_stats,
)
from excite.cli.tags import (
    prepare as tags_clean,
)
from excite.cli.tags import (
    tags_captions,
    tags_generate,
    tags_shards,
    tags_show,
)

__all__ = ["app"]

app = group("Clean a corpus of pictures with tags, and look at its dictionary.")
app.command("clean", epilog=tags_clean.EXAMPLES)(tags_clean.command)
app.command("captions", epilog=tags_captions.EXAMPLES)(tags_captions.command)
app.command("stats", epilog=tags_stats.EXAMPLES)(tags_stats.command)
app.command("show", epilog=tags_show.EXAMPLES)(tags_show.command)
app.command("shards", epilog=tags_shards.EXAMPLES)(tags_shards.command)
app.command("generate", epilog=tags_generate.EXAMPLES)(tags_generate.command)

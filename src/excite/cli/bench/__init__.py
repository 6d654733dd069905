"""``excite bench``: does it work, and on what?"""

from __future__ import annotations

from excite.cli.bench import grounding, localization, pointing
from excite.cli.bench import speed as bench_speed
from excite.cli.options import gone, group

app = group("Measure the engine itself, and how well its maps point and box.")
app.command("pointing", epilog=pointing.EXAMPLES)(pointing.command)
app.command("localization", epilog=localization.EXAMPLES)(localization.command)
app.command("grounding", epilog=grounding.EXAMPLES)(grounding.command)
app.command("speed", epilog=bench_speed.EXAMPLES)(bench_speed.command)
gone(
    app,
    "conservation",
    "bench conservation is a tool of the repository now: `python dev/conservation` in a checkout",
)

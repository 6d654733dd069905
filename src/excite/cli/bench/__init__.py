"""``excite bench``: does it work, and on what?"""

from __future__ import annotations

from excite.cli.bench import experiments
from excite.cli.bench import speed as bench_speed
from excite.cli.options import gone, group

app = group("Measure the engine itself, and how well its maps point and box.")
app.command("pointing", epilog=experiments.POINTING_EXAMPLES)(experiments.pointing)
app.command("localization", epilog=experiments.LOCALIZATION_EXAMPLES)(experiments.localization)
app.command("grounding", epilog=experiments.GROUNDING_EXAMPLES)(experiments.grounding)
app.command("speed", epilog=bench_speed.EXAMPLES)(bench_speed.command)
gone(app, "conservation", "bench conservation is a tool of the repository now: `python dev/conservation` in a checkout")

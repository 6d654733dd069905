"""docs/trust.md: what was tried and found, from the records in docs/trust.

python recipes/trust_page.py            # prints the page
python recipes/trust_page.py --write    # writes docs/trust.md

Each record is made by the command that stands in it. What is promised stands here: a promise is made by people.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from excite.benchmarks.tables import markdown_table
from excite.checking.checks import CHECKS
from excite.readouts.save import save_text

ROOT = Path(__file__).parents[1]
PAGE, RECORDS = ROOT / "docs" / "trust.md", ROOT / "docs" / "trust"
AREAS = {"files": "Files", "faults": "Faults", "numbers": "Numbers", "supply": "Packages"}

OPENING = """# What is tried, and what is promised

Maps are used to decide whether a classifier can be trusted, so the tool must be more trustworthy than what it explains. Here
is what was done to break it, what broke, and what is promised now. `python recipes/trust_page.py --write` puts this page
together from the records in `docs/trust/`; above each table stands the command that made its record.
"""

PROMISES = """## What is promised

- **Maps.** What cannot be explained exactly is refused by name ([limits](limits.md)). A map that lost its signal says so, and
  no map holds NaN. `excite check` tells, for any classifier and any pictures, whether its maps can be relied on
  ([how](check.md)).
- **Faults.** Whatever stops a long command, its output is valid and the same command completes it. No file is ever half
  there: it is written beside its place and moved. What could not be read or written is told in one line, with an exit code
  that is not 0. No traceback is shown without `--debug`.
- **Files.** No file that is read can run code. A broken or hostile one is refused in one line that names it, within 5
  seconds and 1 GB. Pictures are read up to the size that Pillow calls safe ([SECURITY.md](https://github.com/excite/excite/blob/main/SECURITY.md)).
- **Numbers.** The same seed gives the same bytes, in any run, with any number of workers, on one machine or many
  ([numbers](numbers.md)).
- **Versions.** What is public is listed and kept, or deprecated first ([versions](versions.md)).
"""


def page() -> str:
    """The whole page."""
    return "\n".join([OPENING, *sanity(), *faults(), *files(), *numbers(), *packages(), *mended(), PROMISES])


def sanity() -> Iterator[str]:
    """The reports of `excite check`."""
    yield "## Can the maps be relied on?\n"
    for path in sorted(RECORDS.glob("check-*.json")):
        report = _read(path)
        yield f"### {report['model']}, {report['method']} at {report['layer']}\n"
        yield f"`{report['command']}`\n"
        yield f"{report['summary']}\n"
        picture = f"pictures/{path.stem}.png"
        yield f"![The curves of the checks on {report['model']}]({picture})\n"
        for name, check in report["checks"].items():
            yield f"**{CHECKS[name].question}** {' '.join(check['said'])}\n"
            if name in {"randomisation", "removal", "stability"}:
                yield markdown_table(check["rows"]) + "\n"


def faults() -> Iterator[str]:
    """The catalogue of faults, by command."""
    record = _read(RECORDS / "faults.json")
    tried = record["records"]
    yield "## Faults\n"
    yield f"`{record['made_by']}`\n"
    yield (
        f"{record['injections']} faults were really made in {record['commands']} commands, of {record['faults']} kinds: signals sent, "
        f"disks filled ({record['disk']}), inputs taken away, workers killed. Lost or wrong afterwards: {record['lost_or_wrong']}.\n"
    )
    rows = []
    for command in dict.fromkeys(one["command"] for one in tried):
        own = [one for one in tried if one["command"] == command]
        same = sum(one["resumed"].startswith("identical") for one in own)
        kinds = ", ".join(dict.fromkeys(one["fault"] for one in own))
        rows.append(
            {"command": f"`excite {command}`", "faults": kinds, "tried": str(len(own)), "identical after": str(same)}
        )
    yield markdown_table(rows) + "\n"


def files() -> Iterator[str]:
    """The readers that were fuzzed."""
    record = _read(RECORDS / "fuzz.json")
    yield "## Broken and hostile files\n"
    yield f"`{record['made by']}`\n"
    yield (
        f"{record['cases']:,} files for {len(record['readers'])} readers in {record['cpu_hours']} hours of CPU: "
        f"{record['accepted']:,} were read, {record['refused']:,} refused in one line. Crashes, hangs over "
        f"{record['limits']['wall_seconds']:.0f} s, more than {record['limits']['memory_mb']} MB, other errors: "
        f"{len(record['failures'])}.\n"
    )
    rows = [
        {
            "reader": name,
            "cases": f"{facts['cases']:,}",
            "read": f"{facts['accepted']:,}",
            "refused": f"{facts['refused']:,}",
            "slowest s": f"{facts['slowest_seconds']:.2f}",
            "most MB": str(facts["peak_mb"]),
            "failures": str(len(facts["failures"])),
        }
        for name, facts in record["readers"].items()
    ]
    yield markdown_table(rows) + "\n"


def mended() -> Iterator[str]:
    """What broke, and what it does now."""
    yield "## What broke and was mended\n"
    for area, title in AREAS.items():
        rows = [
            {"what": each["what"], "it did": each["did"], "now": each["now"]}
            for each in _read(RECORDS / f"mended-{area}.json")
        ]
        yield f"### {title}: {len(rows)}\n"
        yield markdown_table(rows) + "\n"


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    if parser.parse_args(arguments).write:
        print(f"wrote {save_text(page(), PAGE)}")
    else:
        print(page())


if __name__ == "__main__":
    main()

"""docs/trust.md: what was tried and found, from the records in docs/trust.

python dev/trust_page.py            # prints the page
python dev/trust_page.py --write    # writes its figures again, below the promises, which are made by people

Each record is made by the command that stands in it.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from excite.experiments.checks.run import CHECKS
from excite.io.files import save_text

ROOT = Path(__file__).parents[1]
PAGE, RECORDS = ROOT / "docs" / "trust.md", ROOT / "docs" / "trust"
MARK = "<!-- from here on by dev/trust_page.py -->"
TABLED = {"randomisation", "removal", "stability"}  # checks whose sentences do not say all
AREAS = {"files": "Files", "faults": "Faults", "numbers": "Numbers", "supply": "Packages"}


def table(lines: Sequence[Mapping[str, str]]) -> str:
    """A Markdown table; the cells are our own text and may hold markup."""
    cells = [list(lines[0]), ["---"] * len(lines[0]), *(list(line.values()) for line in lines)]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def page(before: str) -> str:
    """The page, with figures below the mark as the records have them."""
    prose, mark, _ = before.partition(MARK)
    parts = [*sanity(), *faults(), *files(), *numbers(), *packages(), *mended()]
    return f"{prose}{mark}\n\n" + "\n\n".join(parts) + "\n"


def sanity() -> Iterator[str]:
    """The reports of `excite check`."""
    yield "## Can the maps be relied on?"
    for path in sorted(RECORDS.glob("check-*.json")):
        report = _read(path)
        yield f"### {report['model']}, {report['method']} at {report['layer']}"
        yield f"`{report['command']}`"
        yield report["summary"]
        yield f"![The curves of the checks on {report['model']}](pictures/{path.stem}.png)"
        for name, check in report["checks"].items():
            yield f"**{CHECKS[name].question}** {check['standing'].capitalize()}. {' '.join(check['said'])}"
            if name in TABLED:
                yield table(check["rows"])


def faults() -> Iterator[str]:
    """The catalogue of faults, by command."""
    record = _read(RECORDS / "faults.json")
    tried = record["records"]
    yield "## Faults"
    yield f"`{record['made_by']}`"
    yield (
        f"{record['injections']} faults of {record['faults']} kinds were really made in {record['commands']} commands: "
        f"signals sent, disks filled ({record['disk']}), inputs taken away, workers killed. Afterwards the same "
        f"command was given again. Lost or wrong: {record['lost_or_wrong']}."
    )
    yield table([_command(command, tried) for command in dict.fromkeys(one["command"] for one in tried)])


def _command(command: str, tried: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    own = [one for one in tried if one["command"] == command]
    return {
        "command": f"`excite {command}`",
        "faults": ", ".join(dict.fromkeys(one["fault"] for one in own)),
        "tried": str(len(own)),
        "as if nothing had happened": str(sum(one["resumed"].startswith("identical") for one in own)),
    }


def files() -> Iterator[str]:
    """The readers that were fuzzed."""
    record = _read(RECORDS / "fuzz.json")
    limits = record["limits"]
    yield "## Broken and hostile files"
    yield "\n".join(f"`{command}`" for command in record["made by"])
    yield (
        f"{record['cases']:,} files for {len(record['readers'])} readers, in {record['cpu_hours']:.1f} hours of CPU: "
        f"{record['accepted']:,} were read and {record['refused']:,} refused in one line that names the file. Crashes, "
        f"more than {limits['cpu_seconds']:.0f} s of CPU, more than {limits['memory_mb']} MB, and any other error: "
        f"{len(record['failures'])}."
    )
    yield table([_reader(name, facts) for name, facts in record["readers"].items()])


def _reader(name: str, facts: Mapping[str, Any]) -> dict[str, str]:
    return {
        "reader": name,
        "cases": f"{facts['cases']:,}",
        "read": f"{facts['accepted']:,}",
        "refused": f"{facts['refused']:,}",
        "slowest s": f"{facts['slowest_seconds']:.2f}",
        "most MB": str(facts["peak_mb"]),
        "failures": str(len(facts["failures"])),
    }


def numbers() -> Iterator[str]:
    """Precision and determinism."""
    record = _read(RECORDS / "numbers.json")
    built, golden = record["architectures"], record["golden"]
    yield "## Numbers"
    yield f"`{record['command']}`, from `{built['command']}` and `{golden['command']}`"
    rows = [
        {
            "map": f"{name}, {built['architectures']} architectures",
            **_gaps(built[name]),
            "of": built[name]["worst_model"],
        }
        for name in ("mwp", "c-mwp")
    ]
    rows.append({"map": f"{golden['maps']} golden maps", **_gaps(golden), "of": golden["worst_map"]})
    yield "How much of a map lies elsewhere in float32 than in float64:"
    yield table(rows)
    same = ", ".join(f"`{one['command']}`" for one in record["commands"].values() if one["same_bytes"])
    moved = "; ".join(f"{name} {facts['worst']:.0e}" for name, facts in record["moved_by"].items())
    yield (
        f"The same bytes with one and two threads and workers, and once more: {same}. Elsewhere the last digits move, "
        f"at most by: {moved}. Looking for NaN and infinity takes {100 * record['checks']['share']:.2f} % of a map."
    )


def _gaps(facts: Mapping[str, Any]) -> dict[str, str]:
    return {"median": f"{facts['median']:.0e}", "worst": f"{facts['worst']:.0e}"}


def packages() -> Iterator[str]:
    """The wheel and the sdist in empty environments."""
    record = _read(RECORDS / "supply.json")
    yield "## Packages"
    yield f"`{record['made by']}`"
    extras, sizes = record["core"]["without its extra"], record["bytes"]
    took = [f"{record[kind]['seconds']:.0f}" for kind in ("wheel[demo]", "sdist[demo]")]
    yield (
        f"In empty environments of Python {record['python']} the wheel ({sizes['wheel'] / 1e6:.1f} MB) and the sdist "
        f"({sizes['sdist'] / 1e6:.1f} MB) were installed and ran the demo, in {' and '.join(took)} s. With nothing but "
        f"the core `excite attend` worked, and each of {len(extras)} commands that need more said in one line what to "
        "install."
    )


def mended() -> Iterator[str]:
    """What broke, and what it does now."""
    yield "## What broke and was mended"
    for area, title in AREAS.items():
        found = _read(RECORDS / f"mended-{area}.json")
        yield f"### {title}: {len(found)}"
        yield table([{"what": one["what"], "it did": one["did"], "now": one["now"]} for one in found])


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    made = page(PAGE.read_text(encoding="utf-8"))
    if parser.parse_args(arguments).write:
        print(f"wrote {save_text(made, PAGE)}")
    else:
        print(made)


if __name__ == "__main__":
    main()

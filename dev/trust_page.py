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
TABLED = ("removal", "stability")  # checks whose sentences do not say all; the picture has the curves of randomisation
SLOW_SECONDS, MUCH_MEMORY = 0.5, 100  # readers from here on have a row of their own
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
        yield f"`{report['command']}`: {report['summary']}"
        yield f"![The curves of the checks on {report['model']}](pictures/{path.stem}.png)"
        checks = report["checks"]
        yield "\n".join(
            f"- **{CHECKS[name].question}** {check['standing'].capitalize()}. {' '.join(check['said'])}"
            for name, check in checks.items()
        )
        yield table(_joined([checks[name]["rows"] for name in TABLED]))


def _joined(tables: Sequence[Sequence[Mapping[str, str]]]) -> list[dict[str, str]]:
    """One line for each method, with the columns of all tables; a method that a table does not have has empty cells."""
    lines: dict[str, dict[str, str]] = {}
    columns = [column for rows in tables for column in rows[0]]
    for rows in tables:
        for row in rows:
            lines.setdefault(row["method"], dict.fromkeys(columns, "")).update(row)
    return list(lines.values())


def faults() -> Iterator[str]:
    """The catalogue of faults, by kind."""
    record = _read(RECORDS / "faults.json")
    tried = record["records"]
    yield "## Faults"
    yield (
        f"`{record['made_by']}`: {record['injections']} faults of {record['faults']} kinds were really made in "
        f"{record['commands']} commands: "
        f"signals sent, disks filled ({record['disk']}), inputs taken away, workers killed. Afterwards the same "
        f"command was given again. Lost or wrong: {record['lost_or_wrong']}. "
        f"Commands: {', '.join(dict.fromkeys(one['command'] for one in tried))}."
    )
    yield table([_faults(kinds, tried) for kinds in _by_commands(tried)])


def _by_commands(tried: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The kinds of faults; those that were made in as many commands, as often, are together."""
    kinds: dict[tuple[int, int], list[str]] = {}
    for fault in dict.fromkeys(one["fault"] for one in tried):
        own = [one for one in tried if one["fault"] == fault]
        kinds.setdefault((len({one["command"] for one in own}), len(own)), []).append(fault)
    return list(kinds.values())


def _faults(kinds: Sequence[str], tried: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    own = [one for one in tried if one["fault"] in kinds]
    return {
        "faults": ", ".join(kinds),
        "commands": str(len({one["command"] for one in own if one["fault"] == kinds[0]})),
        "tried": str(len(own)),
        "as if nothing had happened": str(sum(one["resumed"].startswith("identical") for one in own)),
    }


def files() -> Iterator[str]:
    """The readers that were fuzzed."""
    record = _read(RECORDS / "fuzz.json")
    limits, made_by = record["limits"], ", ".join(f"`{command}`" for command in record["made by"])
    yield "## Broken and hostile files"
    yield (
        f"{made_by}: {record['cases']:,} files for {len(record['readers'])} readers, in {record['cpu_hours']:.1f} "
        "hours of CPU: "
        f"{record['accepted']:,} were read and {record['refused']:,} refused in one line that names the file. Crashes, "
        f"more than {limits['cpu_seconds']:.0f} s of CPU, more than {limits['memory_mb']} MB, and any other error: "
        f"{len(record['failures'])}. The readers that took at least {SLOW_SECONDS} s or {MUCH_MEMORY} MB, and all "
        "others:"
    )
    rows = {name: facts for name, facts in record["readers"].items() if _is_heavy(facts)}
    others = [facts for facts in record["readers"].values() if not _is_heavy(facts)]
    yield table(
        [_reader(f"the other {len(others)}", others), *(_reader(name, [facts]) for name, facts in rows.items())]
    )


def _is_heavy(facts: Mapping[str, Any]) -> bool:
    return bool(facts["slowest_seconds"] >= SLOW_SECONDS or facts["peak_mb"] >= MUCH_MEMORY)


def _reader(name: str, readers: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {
        "reader": name,
        "cases": f"{sum(facts['cases'] for facts in readers):,}",
        "read": f"{sum(facts['accepted'] for facts in readers):,}",
        "refused": f"{sum(facts['refused'] for facts in readers):,}",
        "slowest s": f"{max(facts['slowest_seconds'] for facts in readers):.2f}",
        "most MB": str(max(facts["peak_mb"] for facts in readers)),
        "failures": str(sum(len(facts["failures"]) for facts in readers)),
    }


def numbers() -> Iterator[str]:
    """Precision and determinism."""
    record = _read(RECORDS / "numbers.json")
    built, golden = record["architectures"], record["golden"]
    yield "## Numbers"
    yield (
        f"`{record['command']}`, from `{built['command']}` and `{golden['command']}`: how much of a map lies elsewhere "
        "in float32 than in float64"
    )
    rows = [
        {
            "map": f"{name}, {built['architectures']} architectures",
            **_gaps(built[name]),
            "of": built[name]["worst_model"],
        }
        for name in ("mwp", "c-mwp")
    ]
    rows.append({"map": f"{golden['maps']} golden maps", **_gaps(golden), "of": golden["worst_map"]})
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
    extras, sizes = record["core"]["without its extra"], record["bytes"]
    took = [f"{record[kind]['seconds']:.0f}" for kind in ("wheel[demo]", "sdist[demo]")]
    yield (
        f"`{record['made by']}`: in empty environments of Python {record['python']} the wheel "
        f"({sizes['wheel'] / 1e6:.1f} MB) and the sdist "
        f"({sizes['sdist'] / 1e6:.1f} MB) were installed and ran the demo, in {' and '.join(took)} s. With nothing but "
        f"the core `excite attend` worked, and each of {len(extras)} commands that need more said in one line what to "
        "install."
    )


def mended() -> Iterator[str]:
    """How much broke and was mended; the records say what it did, and what it does now."""
    yield "## What broke and was mended"
    counts = [f"{title} {len(_read(RECORDS / f'mended-{area}.json'))}" for area, title in AREAS.items()]
    yield (
        f"What these campaigns found is a test now: {', '.join(counts)}. Each is written down, with what it did "
        "and what it does now, in `docs/trust/mended-*.json`."
    )


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

"""Broken and hostile files for every reader of excite: none may crash, hang, fill the memory or end in a traceback.

python dev/fuzz.py --cases 200000 --workers 2 --out docs/trust/fuzz.json   all readers; start it again to resume
python dev/fuzz.py --reader "VOC XML" --case 17 --save broken.xml          one case once more, in this process
python dev/fuzz.py --guided 60 --reader prototxt                           new ways through the code (atheris)

What counts as fine, and which readers there are, dev/fuzzing says. The record holds no failures, or it says which.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import shlex
import sys
import time
from collections import Counter
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "dev/fuzzing")]

from fuzz_catalogue import READERS  # noqa: E402 - found in the folder above
from fuzzed import BROKEN, HOSTILE, content_of  # noqa: E402
from hunting import MOST_BYTES, MOST_CPU, MOST_WALL, PACE, Found, Hunt  # noqa: E402

from excite.cli.console import progress  # noqa: E402
from excite.io.files import save_json  # noqa: E402
from excite.jobs import ResultStore  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK = 1400  # cases of a reader that one process works through
Task = tuple[str, tuple[int, ...]]


def main() -> None:
    """Hunt, print what was found, and end with 1 if anything was."""
    given = _arguments()
    if given.case is not None:
        raise SystemExit(_one_case(given.reader[0], given.case, given.save))
    if given.guided:
        from guided import guided

        raise SystemExit(guided(READERS[given.reader[0]], given.guided))
    names = given.reader or list(READERS)
    found = _hunted(names, given)
    readers = {name: {"entry": READERS[name].entry, **_facts(each), "code": _sign()} for name, each in found.items()}
    commands, others = _others(given)
    record = _record([*commands, shlex.join(["python", "dev/fuzz.py", *sys.argv[1:]])], others | readers)
    if given.out:
        save_json(record, given.out)
        given.out.with_suffix(".jsonl").unlink(missing_ok=True)
    _print(record)
    raise SystemExit(bool(record["failures"]))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=20_000, help="of all readers together, made at random")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing new after so long")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time")
    parser.add_argument("--out", type=Path, help="the record, as JSON")
    parser.add_argument("--quick", action="store_true", help="leave out the hostile files: some take seconds")
    parser.add_argument("--reader", action="append", choices=READERS, default=[], help="only this; --out keeps others")
    parser.add_argument("--case", type=int, help="read this one case of the reader in this process")
    parser.add_argument("--save", type=Path, help="where the file of the case is written")
    parser.add_argument("--guided", type=float, default=0, help="seconds of coverage-guided fuzzing (needs atheris)")
    given = parser.parse_args()
    if (given.case is not None or given.guided) and len(given.reader) != 1:
        parser.error("name one --reader")
    return given


def _one_case(name: str, case: int, save: Path | None) -> int:
    """Make a case again; 1 if it fails."""
    reader = READERS[name]
    content = content_of(reader, case)
    if content is None:
        print(f"{name} has no case {case}: good files begin at 0, hostile ones at {HOSTILE}, broken ones at {BROKEN}")
        return 1
    if save:
        save.write_bytes(content)
    found = Hunt(reader, [case]).finish()
    print(f"{name}, case {case}: ", end="")
    print(found.failures[0][1] if found.failures else "accepted" if found.accepted else "refused")
    return bool(found.failures)


def _tasks(names: list[str], cases: int, *, quick: bool) -> list[Task]:
    """The first cases of all readers come first."""
    stop = BROKEN - (-cases // len(names))
    numbers = [*range(HOSTILE if quick else BROKEN), *range(BROKEN, stop)]
    chunks = [tuple(numbers[start : start + CHUNK]) for start in range(0, len(numbers), CHUNK)]
    return [(name, chunk) for chunk in chunks for name in names]


def _hunted(names: list[str], given: argparse.Namespace) -> dict[str, Found]:
    """What was found for each reader; what an earlier start of the same code has found is taken over."""
    tasks = _tasks(names, given.cases, quick=given.quick)
    store = ResultStore(given.out.with_suffix(".jsonl"), ("reader", "found")) if given.out else None
    sign = _sign()
    done = store.read() if store else {}
    found = {name: Found() for name in names}
    for task in [task for task in tasks if _key(task, sign) in done]:
        found[task[0]].add(Found(**done[_key(task, sign)]["found"]))
    left = [task for task in tasks if _key(task, sign) not in done]
    for task, each in progress(_run(left, given.workers, given.seconds), len(left), "chunks of cases"):
        found[task[0]].add(each)
        if store:
            store.add({"key": _key(task, sign), "reader": task[0], "found": asdict(each)})
        for case, what in each.failures:
            print(f"{task[0]}, case {case}: {what}", file=sys.stderr, flush=True)
    if store:
        store.close()
    return found


def _run(tasks: list[Task], workers: int, seconds: float) -> Iterator[tuple[Task, Found]]:
    """Several hunts at a time; each is told when it is over."""
    end, waiting, running = time.monotonic() + seconds, list(reversed(tasks)), {}
    while running or (waiting and time.monotonic() < end):
        while waiting and len(running) < workers and time.monotonic() < end:
            task = waiting.pop()
            running[task] = Hunt(READERS[task[0]], task[1])
        over = [task for task, hunt in running.items() if hunt.look()]
        for task in over:
            yield task, running.pop(task).found
        if not over:
            time.sleep(PACE)


def _key(task: Task, sign: str) -> str:
    return f"{sign} {task[0]} {task[1][0]}-{task[1][-1]}"


@cache
def _sign() -> str:
    """Changes with the code that is tried, and with the code that tries it."""
    files = [path for folder in ("src", "dev/fuzzing") for path in sorted((ROOT / folder).rglob("*.py"))]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:16]


def _others(given: argparse.Namespace) -> tuple[list[str], dict[str, Any]]:
    """What the record says about the readers that are not run anew, and how that was made."""
    if not (given.reader and given.out and given.out.exists()):
        return [], {}
    record = json.loads(given.out.read_text())
    return record["made by"], record["readers"]


def _record(commands: list[str], readers: dict[str, Any]) -> dict[str, Any]:
    """All readers together; a reader whose code was mended afterwards may have been run anew on its own."""
    rows = [readers[name] for name in READERS if name in readers]
    slowest, largest = max(rows, key=lambda row: row["slowest_seconds"]), max(rows, key=lambda row: row["peak_mb"])
    seconds = sum(row["cpu_seconds"] for row in rows)
    return {
        "made by": commands,
        "python": platform.python_version(),
        "limits": {"cpu_seconds": MOST_CPU, "wall_seconds": MOST_WALL, "memory_mb": MOST_BYTES >> 20},
        **{name: sum(row[name] for row in rows) for name in ("cases", "accepted", "refused")},
        "slowest_seconds": slowest["slowest_seconds"],
        "peak_mb": largest["peak_mb"],
        "cpu_seconds": round(seconds, 3),
        "cpu_hours": round(seconds / 3600, 3),
        "failures": [{"reader": name, **one} for name in readers for one in readers[name]["failures"]],
        "readers": {name: readers[name] for name in READERS if name in readers},
    }


def _facts(found: Found) -> dict[str, Any]:
    facts = {name: value for name, value in asdict(found).items() if name not in {"peak_bytes", "failures"}}
    facts |= {name: round(facts[name], 3) for name in ("slowest_seconds", "cpu_seconds")}
    return {
        **facts,
        "peak_mb": found.peak_bytes >> 20,
        "failures": [{"case": case, "what": what} for case, what in found.failures],
    }


def _print(record: dict[str, Any]) -> None:
    for name, facts in record["readers"].items():
        kinds = Counter(failure["what"][:80] for failure in facts["failures"])
        print(
            f"{name:26} {facts['cases']:>7} cases, {facts['accepted']:>6} accepted, {facts['refused']:>6} refused, "
            f"slowest {facts['slowest_seconds']:.2f} s, {facts['peak_mb']} MB, {sum(kinds.values())} failures"
        )
    print(f"{record['cases']:,} cases in {record['cpu_hours']} hours of CPU, {len(record['failures'])} failures")


if __name__ == "__main__":
    main()

"""Look for answers that are silently wrong: odd networks beside plain twins, torch's functions beside matrices.

    python dev/hunt pairs --seeds 0-5000 --json pairs.jsonl     start it again to resume
    python dev/hunt pairs --seeds 1635 --shrink                 one pair, in the smallest network that still fails
    python dev/hunt functions --samples 6                       all functions, or those that are named behind it
    python dev/hunt table --write                               docs/reference/operations.md; --check: is it right?

What counts as right: the map of the plain twin, or of the matrix; or a refusal by name, where excite does not say that
it can explain it. Ends with 1 if anything else was found.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "dev"), str(ROOT / "src")]

import torch  # noqa: E402 - found in the folders above

from excite.cli.console import progress  # noqa: E402
from excite.io.files import save_json, save_text  # noqa: E402
from excite.jobs import ResultStore  # noqa: E402
from hunt.functions import hunt_function  # noqa: E402
from hunt.pairs import Judged, judge, shrunk  # noqa: E402
from hunt.samples import functions  # noqa: E402
from hunt.table import SAMPLES, differences, page, rows  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PAGE = ROOT / "docs" / "reference" / "operations.md"


def main(arguments: Sequence[str] | None = None) -> None:
    """Hunt, print what was found, and end with 1 if anything was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(required=True)
    pairs = kinds.add_parser("pairs", help="odd networks beside plain twins")
    pairs.add_argument("--seeds", default="0-1000", help="one, or the first and the one after the last: 0-1000")
    pairs.add_argument("--shrink", action="store_true", help="show each finding in the smallest network that has it")
    pairs.add_argument("--json", type=Path, help="a line for each pair; what the same code has found there is kept")
    pairs.set_defaults(run=_pairs)
    each = kinds.add_parser("functions", help="functions of torch beside matrices")
    each.add_argument("names", nargs="*", help="only these; torch. is left out")
    each.add_argument("--samples", type=int, default=SAMPLES, help="of each function")
    each.add_argument("--json", type=Path, help="all findings, and the number of each verdict")
    each.set_defaults(run=_functions)
    table = kinds.add_parser("table", help="the page about all functions")
    table.add_argument("--write", action="store_true", help=f"to docs/reference/{PAGE.name}")
    table.add_argument("--check", action="store_true", help="compare with that")
    table.set_defaults(run=_table)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)  # the networks are tiny
    raise SystemExit(given.run(given))


def _pairs(given: argparse.Namespace) -> int:
    first, _, last = given.seeds.partition("-")
    seeds = range(int(first), int(last) if last else int(first) + 1)
    counts: Counter[str] = Counter()
    found: dict[tuple[str, str], list[Judged]] = defaultdict(list)
    for judged in progress(_judged(seeds, given.json), len(seeds), "pairs"):
        counts[judged.verdict] += 1
        if judged.found:
            found[judged.verdict, judged.odd].append(judged)
    for _, alike in sorted(found.items()):
        one = shrunk(alike[0].seed) if given.shrink else alike[0]
        print(one if len(alike) == 1 else f"{one}, and {len(alike) - 1} more like it")
    return _summed_up(counts, len(seeds), "pairs", sum(map(len, found.values())))


def _judged(seeds: Sequence[int], path: Path | None) -> Iterator[Judged]:
    """All pairs; those that the same code has judged before are read."""
    store = None if path is None else ResultStore(path, ("facts",))
    done = {} if store is None else store.read()
    sign = _sign()
    for seed in seeds:
        key = f"{sign} {seed}"
        if key in done:
            yield Judged(**done[key]["facts"])
            continue
        judged = judge(seed)
        if store is not None:
            store.add({"key": key, "facts": judged.facts()})
        yield judged
    if store is not None:
        store.close()


def _sign() -> str:
    """Changes with the code that is tried, and with the code that tries it."""
    files = [
        path for folder in ("src/excite/propagation", "dev/hunt") for path in sorted((ROOT / folder).rglob("*.py"))
    ]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:16]


def _functions(given: argparse.Namespace) -> int:
    names = given.names or list(functions())
    unknown = sorted(set(names) - set(functions()))
    if unknown:
        print(f"no such function: {', '.join(unknown)}", file=sys.stderr)
        return 2
    counts: Counter[str] = Counter()
    found = []
    for name in progress(names, len(names), "functions"):
        for tried in hunt_function(functions()[name], given.samples):
            counts[tried.verdict] += 1
            if tried.found:
                found.append(str(tried))
                print(tried, flush=True)
    if given.json:
        save_json({"torch": torch.__version__, "counts": dict(counts), "findings": found}, given.json)
    return _summed_up(counts, sum(counts.values()), f"calls of {len(names)} functions", len(found))


def _summed_up(counts: Counter[str], total: int, what: str, found: int) -> int:
    print(f"{total:,} {what}: {', '.join(f'{number:,} {verdict}' for verdict, number in counts.most_common())}")
    return int(found > 0)


def _table(given: argparse.Namespace) -> int:
    made = dict(rows(progress(functions().values(), len(functions()), "functions")))
    if given.check:
        wrong = differences(PAGE.read_text(encoding="utf-8"), made)
        print("\n".join(wrong) or f"{PAGE.name} is up to date")
        return int(bool(wrong))
    if given.write:
        print(f"wrote {save_text(page(made), PAGE)}")
    else:
        print(page(made))
    return 0


if __name__ == "__main__":
    main()

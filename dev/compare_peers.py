"""excite beside captum, zennit, TorchRay and grad-cam: asks the packages, and keeps docs/comparison.md true.

python dev/compare_peers.py            # prints the page
python dev/compare_peers.py --write    # writes docs/comparison.md
python dev/compare_peers.py --check    # fails when that page says something else

Each cell is found by running the package, or by reading what its files declare. A package that is not installed is
named, and its column is left as it stands. With --quick no well-known network is run, and those rows are left too.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from peers.asking import PEERS
from peers.table import GROUPS, answers, differences, headings, rewritten

from excite.io.files import save_text

PAGE = Path(__file__).parents[1] / "docs" / "comparison.md"
MEND = "python dev/compare_peers.py --write"


def main(arguments: Sequence[str] | None = None) -> None:
    """Ask all packages that are here."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--write", action="store_true")
    kind.add_argument("--check", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args(arguments)
    if not options.page.is_file():
        parser.error(f"there is no page {str(options.page)!r}")
    torch.set_num_threads(1)
    here = [peer for peer in PEERS if peer.installed]
    rows = [row for rows in GROUPS.values() for row in rows if row.quick or not options.quick]
    for peer in PEERS:
        if peer not in here:
            print(f"not checked: {peer.name} is not installed (pip install {peer.distribution})")
    found, heads = answers(here, rows), headings(here)
    page = options.page.read_text(encoding="utf-8")
    if options.check:
        wrong = differences(page, found, heads)
        if wrong:
            sys.exit(f"{options.page.name} differs in {len(wrong)}: {'; '.join(wrong)}. To mend it: {MEND}")
        print(f"{options.page.name} is right: {len(rows)} rows of {', '.join(heads.values())}")
    elif options.write:
        print(f"wrote {save_text(rewritten(page, found, heads), options.page)}")
    else:
        print(rewritten(page, found, heads))


if __name__ == "__main__":
    main()

"""Whether a generated corpus was cleaned exactly as it was made to be: every row, and every count of the dictionary.

python dev/generate_tags.py 17000000 --out made
excite tags clean made/corpus.parquet --out kept.parquet --workers 2
python recipes/check_cleaning.py made kept.parquet
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from excite.tags.dictionary import Dictionary, dictionary_beside


def main() -> None:
    """Compare, print, and end with 1 if anything is different."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("made", type=Path)
    parser.add_argument("kept", type=Path)
    given = parser.parse_args()
    report = json.loads(given.kept.with_suffix(".report.json").read_text())
    expected = pq.read_table(given.made / "truth.parquet").column(report["rules"]["against"]).combine_chunks()
    rules = expected.dictionary_encode()
    codes = {rule: code for code, rule in enumerate(rules.dictionary.to_pylist())}
    found = np.full(len(expected), codes[""])
    dropped = pq.read_table(given.kept.with_suffix(".dropped.parquet"), columns=["row", "rule"])
    for rule in {*codes} - {""}:
        found[dropped.column("row").filter(_equal(dropped.column("rule"), rule)).to_numpy()] = codes[rule]
    wrong = int((found != rules.indices.to_numpy()).sum())
    truth = Dictionary.read(given.made / "truth.tags.csv")
    counted = [one for one in zip(truth.tags, truth.counts, strict=True) if one[1] >= report["rules"]["least_count"]]
    same = Dictionary.read(dictionary_beside(given.kept)) == Dictionary.ranked(counted)
    print(f"{len(expected):,} rows, {wrong:,} of them wrong; the dictionary of {len(counted):,} tags is ", end="")
    print("exact" if same else "WRONG")
    raise SystemExit(bool(wrong) or not same)


def _equal(column: object, value: str) -> object:
    import pyarrow.compute as pc

    return pc.equal(column, value)


if __name__ == "__main__":
    main()

"""Make every fault of the catalogue in dev/faulting, and write down what was seen.

    python dev/faults.py --out docs/trust/faults.json            about half an hour on two cores
    python dev/faults.py --out faults.json --only "tags clean"   one command; what the file says of others stays

Each fault is really made: signals, a small disk that is full or read-only, inputs that vanish, workers that are killed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from excite.io.files import save_json

HERE = Path(__file__).parent


def main() -> None:
    """Run the catalogue; ends with 1 if anything was lost or wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="The file to write.")
    parser.add_argument("--only", help="Only this command.")
    asked = parser.parse_args()
    sys.path[:0] = [str(HERE.with_name("tests")), str(HERE / "faulting")]
    from catalogue import ALL
    from injection import Laboratory

    chosen = [one for one in ALL if asked.only in {None, one.command}]
    started, records = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder, closing(Laboratory(Path(folder), everything=True)) as laboratory:
        for number, injection in enumerate(chosen, 1):
            record = _tried(laboratory, injection)
            records.append(record)
            print(f"{number}/{len(chosen)} {injection}: {record['resumed']}", flush=True)
        disk = "a tmpfs of its own" if laboratory.disk.mounted else "limits of the process"
    seconds = round(time.monotonic() - started)
    if asked.only is not None and asked.out.exists():
        before = json.loads(asked.out.read_text(encoding="utf-8"))
        seconds += before["seconds"]
        records = [record for record in before["records"] if record["command"] != asked.only] + records
    failed = [record for record in records if not record["resumed"].startswith("identical")]
    about = {
        "made_by": "python dev/faults.py --out docs/trust/faults.json",
        "date": datetime.now(UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "torch": version("torch"),
        "disk": disk,
        "injections": len(records),
        "commands": len({record["command"] for record in records}),
        "faults": len({record["fault"] for record in records}),
        "lost_or_wrong": len(failed),
        "seconds": seconds,
        "records": records,
    }
    save_json(about, asked.out)
    raise SystemExit(1 if failed else 0)


def _tried(laboratory, injection):  # noqa: ANN001, ANN202 - of the tests, which have no types
    """The record of one fault; what went wrong stands where the result would."""
    try:
        return laboratory.inject(injection)
    except (AssertionError, OSError) as error:
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = "" if place is None else f"{Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno} "
        wrong = f"WRONG: {where}{' '.join(str(error).split())[:500]}"
        return {"command": injection.command, "fault": injection.fault, "moment": injection.moment, "resumed": wrong}


if __name__ == "__main__":
    main()

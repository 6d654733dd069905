"""Every command answers and writes what it did when tests/snapshots/frozen was made.

If a change is meant, ``python tests/snapshots/freeze.py [-k NAME]`` writes the files again: look at their diff.
"""

import json
import os
from pathlib import Path

import pytest

pytest.importorskip("skimage.data")

from snapshot_capture import make_world, observe, options_of, same_place, subcommands
from snapshot_cases import CASES
from snapshot_compare import differences, dump

FROZEN = Path(__file__).parent / "frozen"
FREEZE = os.environ.get("EXCITE_FREEZE") == "1"
MOST = 40  # differences that are shown
HELP = json.loads((FROZEN / "help.json").read_text()) if (FROZEN / "help.json").exists() else {}


def path_of(name):
    return FROZEN / f"{name.replace(' ', '-')}.json"


def told(found):
    found = sorted(found)
    more = f"\n... and {len(found) - MOST} more" if len(found) > MOST else ""
    only = all("/key:" in each for each in found)
    hint = " (only in keys of ledgers: runs that an older version began would not be resumed)" if only else ""
    return f"{len(found)} differences{hint}:\n" + "\n".join(found[:MOST]) + more


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("snapshots") / "world"
    folder.mkdir()
    make_world(folder)
    return folder


@pytest.mark.parametrize("name", CASES)
def test_answers(name, world):
    path = path_of(name)
    with same_place(path.stem) as folder:
        found = json.loads(json.dumps(observe(CASES[name], world, folder)))
    if FREEZE:
        path.write_text(dump(found) + "\n")
    frozen = json.loads(path.read_text())
    changes = list(differences(frozen, found))
    assert not changes, told(changes)


def test_commands():
    """The same commands are there."""
    found = subcommands()
    if FREEZE:
        (FROZEN / "help.json").write_text(dump({command: options_of(command) for command in found}) + "\n")
        return
    assert found == list(HELP)


@pytest.mark.parametrize("command", [] if FREEZE else HELP)
def test_options(command):
    """The same arguments and options, with the same defaults and bounds."""
    changes = list(differences(HELP[command], options_of(command)))
    assert not changes, told(changes)


@pytest.mark.skipif(FREEZE, reason="the files are being written")
def test_nothing_is_frozen_in_vain():
    assert {path.name for path in FROZEN.iterdir()} == {path_of(name).name for name in CASES} | {"help.json"}
    assert sum(path.stat().st_size for path in FROZEN.iterdir()) < 1_000_000

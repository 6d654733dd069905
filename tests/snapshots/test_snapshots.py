"""Every command answers and writes what it did when tests/snapshots/frozen was made.

If a change is meant, ``python dev/snapshots/freeze.py [-k NAME]`` writes the files again: look at their diff.
"""

import json
import os
from pathlib import Path

import pytest

pytest.importorskip("skimage.data")

from snapshot_capture import make_world, observe, options_of, quiet, same_place, subcommands
from snapshot_cases import CASES
from snapshot_compare import differences, dump
from snapshot_python import python_answers
from snapshot_served import served_answers

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


def hold_against(path, found):
    found = json.loads(json.dumps(found))
    if FREEZE:
        path.write_text(dump(found) + "\n")
    changes = list(differences(json.loads(path.read_text()), found))
    assert not changes, told(changes)


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
        found = observe(CASES[name], world, folder)
    hold_against(path, found)


def test_python(world):
    """The functions of the package."""
    with quiet(world):
        hold_against(path_of("python"), python_answers())


def test_served(world):
    """The server, over HTTP."""
    hold_against(path_of("served"), served_answers(world))


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
    assert {path.name for path in FROZEN.iterdir()} == {
        path_of(name).name for name in (*CASES, "help", "python", "served")
    }
    assert sum(path.stat().st_size for path in FROZEN.iterdir()) < 1_000_000


def leaves(value, where=""):
    if isinstance(value, dict):
        yield from (leaf for key, each in value.items() for leaf in leaves(each, f"{where}/{key}"))
    elif isinstance(value, list):
        yield from (leaf for number, each in enumerate(value) for leaf in leaves(each, f"{where}[{number}]"))
    else:
        yield where, value


def changed(value, where):
    """Another value that is not far away."""
    if isinstance(value, float):
        return value + (2 if "/brightness[" in where else 1e-6 + 1e-4 * abs(value))
    return {bool: lambda: not value, int: lambda: value + 1, str: lambda: f"{value}.", type(None): lambda: 0}[
        type(value)
    ]()


@pytest.mark.parametrize("path", sorted(FROZEN.iterdir()), ids=lambda path: path.stem)
def test_every_value_is_watched(path):
    """A small change of any one frozen value is a difference, and none is none."""
    frozen = json.loads(path.read_text())
    assert not list(differences(frozen, frozen))
    missed = [where for where, value in leaves(frozen) if not list(differences(value, changed(value, where), where))]
    assert not missed


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (0.1, 0.1000001, False),
        (0.1, 0.10001, True),
        (1, 1.0, True),
        ("mean 0.12345 of 3", "mean 0.123450001 of 3", False),
        ("mean 0.12345 of 3", "mean 0.1235 of 3", True),
        ("mean 0.5 of 3", "mean 0.5 of 4", True),
        ("a | b", "b | a", True),
        ([1, 2], [1, 2, 3], True),
        ({"a": 1}, {"b": 1}, True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False),
        (None, 0, True),
    ],
)
def test_what_is_a_difference(old, new, said):
    assert bool(list(differences(old, new))) == said

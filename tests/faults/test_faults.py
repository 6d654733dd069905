"""Long commands meet faults that are really made: nothing is lost, nothing is wrong, and a second run completes it."""

from contextlib import closing

import pytest
from catalogue import ALL, QUICK
from fault_kinds import FAULTS
from injection import Injection, Laboratory
from long_commands import COMMANDS


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory):
    with closing(Laboratory(tmp_path_factory.mktemp("faults"))) as made:
        yield made


@pytest.mark.parametrize("command", QUICK)
def test_faults(laboratory, command):
    for fault, moment in QUICK[command].items():
        record = laboratory.inject(Injection(command, fault, moment))
        assert record["resumed"].startswith("identical")


def test_the_catalogue():
    """Every long command is killed, stopped, starved of room and kept from writing."""
    assert sum(map(len, QUICK.values())) >= 24
    tried = {(one.command, one.fault) for one in ALL}
    for fault in ("kill -9", "Ctrl-C", "full disk", "read-only folder"):
        assert {command for command, which in tried if which == fault} == set(COMMANDS)
    assert {fault for _, fault in tried} == set(FAULTS)

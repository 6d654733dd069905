"""docs/comparison.md says what the packages answer; here the quick rows are asked of those that the tests install."""

import importlib
import sys
from pathlib import Path

import pytest
import torch
from zoo import torchvision_models

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")

try:
    torchvision_models()
except ImportError:
    pytest.skip("some peers need torchvision", allow_module_level=True)


@pytest.fixture(scope="module")
def recipe():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "dev")
        yield importlib.import_module("compare_peers")


@pytest.fixture(scope="module")
def table(recipe):
    return sys.modules["peers.table"]


def peer_named(recipe, name):
    return next(peer for peer in recipe.PEERS if peer.name == name)


@pytest.fixture(autouse=True)
def _threads_as_before():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", ["excite", "captum", "zennit"])
def test_the_page_says_what_they_answer(recipe, table, name):
    peer = peer_named(recipe, name)
    if not peer.installed:
        pytest.skip(f"{name} is a peer of these tests: pip install 'excite[dev]'")
    stood = table.read(PAGE)[1][name]
    if stood != table.headings([peer])[name]:
        pytest.skip(f"the page is of {stood}, here is {peer.version}: {recipe.MEND}")
    rows = [row for rows in table.GROUPS.values() for row in rows if row.quick]
    assert len(rows) > 15
    assert table.differences(PAGE, table.answers([peer], rows), table.headings([peer])) == []


def test_no_cell_is_open(recipe, table):
    found, heads = table.read(PAGE)
    questions = [row.question for rows in table.GROUPS.values() for row in rows]
    assert len(questions) == len(set(questions))
    assert not {*questions} & {*table.GROUPS}
    assert list(found) == [(question, peer.name) for question in questions for peer in recipe.PEERS]
    assert all(found.values())
    assert table.UNVERIFIED not in found.values()
    assert all(head.startswith(f"{name} ") for name, head in heads.items() if name != "excite")


def test_a_wrong_cell_is_found(table):
    found, heads = table.read(PAGE)
    assert table.differences(PAGE, found, heads) == []
    cell = "| operations without a rule refused | 3 of 3 | 0 of 3 |"
    assert cell in PAGE
    changed = PAGE.replace(cell, cell.replace("0 of 3", "2 of 3"))
    assert table.differences(changed, found, heads) == [
        "'operations without a rule refused' of captum is '2 of 3' on the page and '0 of 3' here"
    ]
    assert len(table.differences(PAGE.replace("captum 0.", "captum 7."), found, heads)) == 1
    assert len(table.differences(PAGE.replace("| has it |", "| has what |"), found, heads)) == 5 + 1


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("1.76e7", "1.75e7", True),
        ("0.949 (own module: exact)", "0.95 (own module: exact)", True),
        ("0.949", "0.883", False),
        ("0.949 (own module: exact)", "0.949", False),
        ("yes", "no", False),
        ("5", "1", False),
    ],
)
def test_numbers_may_differ_in_the_last_digit(recipe, one, other, equal):
    assert sys.modules["peers.cells"].same(one, other) is equal


def test_what_is_not_installed_is_said_and_left(recipe, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("peers.asking.find_spec", lambda package: package if package == "excite" else None)
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace("| has it | yes |", "| has it | never |"), encoding="utf-8")
    few = {group: rows[:1] for group, rows in recipe.GROUPS.items()}
    monkeypatch.setattr(recipe, "GROUPS", few)
    with pytest.raises(
        SystemExit, match=r"^page\.md differs in 1: 'has it' of excite is 'never' on the page and 'yes' h"
    ):
        recipe.main(["--check", "--quick", "--page", str(page)])
    recipe.main(["--write", "--quick", "--page", str(page)])
    assert page.read_text(encoding="utf-8") == PAGE
    recipe.main(["--check", "--quick", "--page", str(page)])
    said = capsys.readouterr().out
    for name in ("captum", "zennit", "TorchRay", "grad-cam"):
        assert said.count(f"not checked: {name} is not installed (pip install") == 3


def test_the_matrices_hand_down_all_of_a_signal(recipe):
    networks, matrices = sys.modules["peers.networks"], sys.modules["peers.matrices"]
    for kind in (networks.Plain, networks.Added):
        won = matrices.winners(networks.made(kind(), biases=False), networks.picture(), 1)
        assert won.min() >= 0
        torch.testing.assert_close(won.sum(), torch.ones_like(won.sum()))

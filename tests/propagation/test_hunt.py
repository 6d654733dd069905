"""The hunt of dev/hunt in small: each odd spelling once, some of torch's functions; and it finds what is wrong."""

import json
import sys
from functools import cache
from itertools import groupby
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "dev"))

from hunt import __main__ as command  # noqa: E402 - found in the folder above
from hunt.asking import EQUAL, REFUSED, RIGHT, UNHELPFUL, WRONG  # noqa: E402
from hunt.functions import hunt_function  # noqa: E402
from hunt.networks import SPELLINGS  # noqa: E402
from hunt.pairs import judge, shrunk  # noqa: E402
from hunt.samples import functions  # noqa: E402
from hunt.table import SAMPLES, differences, page, row  # noqa: E402

from excite.propagation.operations import NODES, OPERATIONS, Operation, scaled  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "operations.md"
# What is known to be wrong, and why: each test fails when it is mended, so that its line is removed.
KNOWN_PAIRS: dict[str, str] = {}
KNOWN_FUNCTIONS: dict[str, str] = {}


@pytest.fixture(autouse=True)
def kernels():
    """The hunt tries both kinds of kernels itself."""


def marked(names, known):
    return [
        pytest.param(name, marks=pytest.mark.xfail(reason=known[name], strict=True) if name in known else ())
        for name in names
    ]


def seed_of(spelling, turn=0):
    return list(SPELLINGS).index(spelling) + turn * len(SPELLINGS)


@pytest.mark.parametrize("spelling", marked(SPELLINGS, KNOWN_PAIRS))
def test_an_odd_network_is_explained_as_its_plain_twin_or_refused(spelling):
    judged = judge(seed_of(spelling))
    assert judged.verdict in RIGHT, judged


@cache
def by_name():
    """All functions; variants with one name stand together."""
    return {name: list(each) for name, each in groupby(functions().values(), key=lambda function: function.name)}


@cache
def tried(name):
    return [one for function in by_name()[name] for one in hunt_function(function, SAMPLES)]


@pytest.fixture(scope="session")
def some_names():
    return list(by_name())[::24]


def test_functions_have_the_map_of_their_matrix_or_are_refused(some_names):
    found = [str(one) for name in some_names for one in tried(name) if one.found and name not in KNOWN_FUNCTIONS]
    assert found == [], "\n".join(found)
    assert len(some_names) > 19
    assert sum(one.verdict == EQUAL for name in some_names for one in tried(name)) > 35


@pytest.mark.parametrize("quarter", range(4))
def test_each_operation_of_the_table_has_the_map_of_its_matrix(quarter):
    """Called as a function, a method, in place, by names, with ``out``; each tensor and each pair of them live."""
    with_rules = [function for function in functions().values() if function.name.rpartition(".")[2] in OPERATIONS]
    judged = [one for function in with_rules[quarter::4] for one in hunt_function(function, 1)]
    assert [str(one) for one in judged if one.found] == []
    assert sum(one.verdict == EQUAL for one in judged) > 150


def test_the_page_is_up_to_date(some_names):
    text = PAGE.read_text(encoding="utf-8")
    version = torch.__version__.partition("+")[0]
    if f"for torch {version}:" not in text:
        pytest.skip(f"the page is about another torch than {version}: python dev/hunt table --write")
    assert differences(text, dict(row(name, tried(name)) for name in some_names if tried(name))) == []
    assert len(text.splitlines()) < 150


# --- the hunt finds what is wrong ------------------------------------------------------------------------------------


@pytest.fixture
def forgets_alpha(monkeypatch):
    """``rsub`` as if its factor were always 1."""
    monkeypatch.setitem(OPERATIONS, "rsub", Operation(lambda call: scaled(call, call.subject, -1.0)))


@pytest.mark.usefixtures("forgets_alpha")
def test_a_broken_rule_is_found_among_functions():
    assert WRONG in {one.verdict for one in hunt_function(functions()["rsub"], SAMPLES)}


def test_a_function_that_only_seems_to_copy_is_found(monkeypatch):
    assert {one.verdict for one in hunt_function(functions()["sin"], SAMPLES)} == {REFUSED}
    monkeypatch.setitem(NODES, "Sin", Operation(copies=True))
    assert WRONG in {one.verdict for one in hunt_function(functions()["sin"], SAMPLES)}


def test_a_refusal_of_what_is_right_is_found(monkeypatch):
    monkeypatch.setitem(OPERATIONS, "masked_fill", Operation(lambda call: call.refuse("a test")))
    judged = [judge(seed_of("masked_fill", turn)) for turn in range(4)]
    assert UNHELPFUL in {each.verdict for each in judged}


@pytest.mark.usefixtures("forgets_alpha")
def test_findings_are_shrunk():
    seed = next(seed for turn in range(9) if judge(seed := seed_of("rsub(h, h, alpha=-2)", turn)).found)
    small = shrunk(seed)
    assert small.verdict == WRONG
    assert small.plan.startswith("[rsub(h, h, alpha=-2)], skip: none; above the layer; then linear")


# --- its parts -------------------------------------------------------------------------------------------------------


def test_the_page_can_be_read_back():
    made = {"add": "Sum or Pass", "mul*": "Pass or ProductRule", "tanh": "Pass", "sin": "refused", "view": "copy"}
    text = page(made)
    assert differences(text, made) == []
    assert differences(text, {"sin": "Pass", "cos": "refused"}) == ["sin: Pass, not refused", "cos: refused, not there"]
    assert len(differences(text.replace("for torch ", "for torch 9"), made)) == 1


def test_the_command_resumes_and_ends_with_1_on_findings(tmp_path, capsys, monkeypatch):
    path = tmp_path / "pairs.jsonl"
    seed = seed_of("rsub(alpha=-1)")
    for _ in range(2):  # the second time all is read
        with pytest.raises(SystemExit, match="0"):
            command.main(["pairs", "--seeds", f"{seed}-{seed + 2}", "--json", str(path)])
        assert capsys.readouterr().out.startswith("2 pairs: ")
    assert [json.loads(line)["facts"]["seed"] for line in path.read_text().splitlines()] == [seed, seed + 1]
    monkeypatch.setitem(OPERATIONS, "rsub", Operation(lambda call: scaled(call, call.subject, -1.0)))
    with pytest.raises(SystemExit, match="1"):
        command.main(["functions", "rsub"])
    assert "silently wrong: rsub" in capsys.readouterr().out

"""The code of docs/reference/extending.md about rules runs as it stands there."""

import re
from pathlib import Path

import pytest
import torch
from oracle import Net, randomise
from torch import nn
from torch.nn import functional as F

from excite.errors import NoRuleError
from excite.propagation import OPERATIONS, mwp

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "extending.md"
RULES = PAGE.read_text(encoding="utf-8").partition("## A rule")[2].partition("\n## ")[0]


@pytest.fixture
def page(monkeypatch):
    for name in ("foo", "bar"):
        monkeypatch.setitem(OPERATIONS, name, None)  # taken out again afterwards
    found = {}
    for block in re.findall(r"```python\n(.*?)```", RULES, re.DOTALL):
        exec(block, found)  # noqa: S102 - our own page
    return found


def test_a_rule_from_outside(page, monkeypatch):
    """Two operations without a rule get those of the page: a sum, and a single child."""
    parts = {"a": nn.Conv2d(2, 2, 3, padding=1), "b": nn.Conv2d(2, 2, 1)}
    net = randomise(Net(lambda net, h: torch.hypot(F.relu(net.a(h)), F.relu(net.b(h))).erf(), 32, **parts), 0)
    x = torch.rand(1, 2, 4, 4, dtype=torch.float64)
    with pytest.raises(NoRuleError, match=r"'hypot'|'erf'"):
        mwp(net, x, 0, layer="a")
    monkeypatch.setitem(OPERATIONS, "hypot", page["shifted_sum"])
    monkeypatch.setitem(OPERATIONS, "erf", OPERATIONS["bar"])
    won = mwp(net, x, 0, layer=["a", "b"])
    assert 0 < won["a"].sum() < 1
    torch.testing.assert_close(float(won["a"].sum() + won["b"].sum()), 1.0)

"""Dense layers are read in blocks of the rows that won, and norms negate rows of the weights."""

import pytest
import torch
from test_together import SIGNALS, Branched, X, net

from excite.propagation import ExcitationPass, mwp
from excite.propagation.fast import kernels
from excite.propagation.fast.kernels import DenseRule
from excite.propagation.graph import nodes_below, rule_of
from excite.propagation.rules import Affine

__all__ = ["Branched", "net"]


@pytest.mark.parametrize("block", [1, 7, 10**6])
def test_rows_in_blocks(net, monkeypatch, block):
    expected = mwp(net, X, SIGNALS, layer="norm", contrastive=True)
    monkeypatch.setattr(kernels, "BLOCK", block)
    torch.testing.assert_close(mwp(net, X, SIGNALS, layer="norm", contrastive=True), expected, rtol=1e-12, atol=1e-15)


def test_full_connections_look_only_at_rows_that_won(net, monkeypatch):
    asked = []
    rows = DenseRule._rows

    def noted(self, *arguments):
        (won,) = rows(self, *arguments)
        asked.append(won.tolist())
        return [won]

    monkeypatch.setattr(DenseRule, "_rows", noted)
    looked = ExcitationPass(net, X, ["same"])
    looked.down(torch.eye(7, dtype=torch.float64)[[2, 2, 4]], dual=-1.0)
    top, fc = asked[:2], asked[2:]
    assert top == [[2, 4], [2, 4]]  # the units and their duals
    assert all(len(rows) < 20 for rows in fc)


def test_a_norm_of_both_signs_needs_one_competition(net):
    looked = ExcitationPass(net, X, ["input"])
    looked.down(SIGNALS[0])
    stem = next(
        rule
        for node in nodes_below(looked.top)
        if isinstance(rule := rule_of(node), Affine) and rule.weight.data_ptr() == net.stem.weight.data_ptr()
    )
    assert set(net.norm.weight.detach().sign().tolist()) == {-1.0, 1.0}
    assert [side for side, _ in stem._normalisers] == [(1, True)]

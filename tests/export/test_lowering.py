"""Transposes in terms of plain operations: each beside torch's own."""

import pytest
import torch

from excite.export.lowering import adaptive_avg_pool, adaptive_avg_pool_backward, max_pool_backward, pair

aten = torch.ops.aten


@pytest.mark.parametrize("sides", [(14, 14), (5, 9), (3, 2), (1, 1)])
@pytest.mark.parametrize("places", [(7, 7), (3, 4), (1, 1)])
def test_adaptive_means(sides, places):
    """Also where units are means of overlapping children, and where there are more units than children."""
    child = torch.randn(2, 3, *sides, dtype=torch.float64)
    signal = torch.randn(2, 3, *places, dtype=torch.float64)
    wanted = aten._adaptive_avg_pool2d_backward(signal, child)
    torch.testing.assert_close(adaptive_avg_pool_backward(signal, child), wanted)
    torch.testing.assert_close(adaptive_avg_pool(child, places), aten._adaptive_avg_pool2d(child, places))


WINDOWS = [(2, 2, 0, 1), (3, 2, 0, 1), (3, 1, 1, 1), (3, 2, 1, 1), ((3, 2), (2, 1), (1, 0), 1), ((5, 3), 1, (2, 1), 1),
           (3, 1, 1, (1, 2)), ((1, 3), 1, (0, 1), 1), ((3, 1), (2, 1), (1, 0), 1), (1, 2, 0, 1)]  # fmt: skip


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("sides", [(7, 10), (9, 9)])
def test_back_through_max_pooling(window, ceil, sides):
    """Also where several children are the largest: the first one wins, row by row, as in torch."""
    torch.manual_seed(0)
    child = torch.randint(-3, 4, (2, 3, *sides)).float().relu()
    options = [pair(each) for each in window]
    largest, chosen = aten.max_pool2d_with_indices(child, *options, ceil)
    signal = torch.rand_like(largest)
    wanted = aten.max_pool2d_with_indices_backward(signal, child, *options, ceil, chosen)
    found = max_pool_backward(signal, child, *options, ceil, torch.full_like(chosen, -1))  # torch's choice is not used
    torch.testing.assert_close(found, wanted)

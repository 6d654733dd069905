"""Transposes in terms of plain operations: each beside torch's own."""

import pytest
import torch

from excite.exporting.lowering import adaptive_avg_pool, adaptive_avg_pool_backward

aten = torch.ops.aten


@pytest.mark.parametrize("sides", [(7, 7), (14, 14), (5, 9), (13, 8), (3, 2), (1, 1)])
@pytest.mark.parametrize("places", [(7, 7), (3, 4), (1, 1), (2, 6)])
def test_adaptive_means(sides, places):
    """Also where units are means of overlapping children, and where there are more units than children."""
    child = torch.randn(2, 3, *sides, dtype=torch.float64)
    signal = torch.randn(2, 3, *places, dtype=torch.float64)
    wanted = aten._adaptive_avg_pool2d_backward(signal, child)
    torch.testing.assert_close(adaptive_avg_pool_backward(signal, child), wanted)
    torch.testing.assert_close(adaptive_avg_pool(child, places), aten._adaptive_avg_pool2d(child, places))

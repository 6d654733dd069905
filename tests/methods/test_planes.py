"""Blurring and normalising maps."""

import pytest
import torch

from excite.methods.base import blurred, normalised


def test_the_papers_amount():
    maps = torch.rand(1, 50, 100)
    torch.testing.assert_close(blurred(maps), blurred(maps, 0.02))
    spike = torch.zeros(1, 101, 201, dtype=torch.float64)
    spike[0, 50, 100] = 1
    spread = blurred(spike)[0]
    torch.testing.assert_close(spread.sum(), torch.ones((), dtype=torch.float64))
    offsets = torch.arange(201) - 100
    assert float((spread.sum(0) * offsets**2).sum()) == pytest.approx((0.02 * 201) ** 2, rel=0.01)


def test_normalised_over_space():
    maps = torch.tensor([[[1.0, -3.0], [0.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]])
    assert torch.equal(normalised(maps)[0], maps[0] / 8)
    assert torch.equal(normalised(maps)[1], maps[1])

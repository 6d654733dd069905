"""The rank correlation of two maps, against scipy's and by hand."""

import numpy as np
import pytest
import torch
from scipy import stats

from excite.metrics.ranking import rank_correlation


@pytest.mark.parametrize("levels", [2, 5, 1000])
@pytest.mark.parametrize("seed", range(5))
def test_it_is_scipys_also_where_many_places_are_equal(levels, seed):
    drawn = np.random.default_rng(seed).integers(0, levels, (2, 9, 13)).astype(float)
    one, other = (torch.from_numpy(values) for values in drawn)
    assert rank_correlation(one, other) == pytest.approx(stats.spearmanr(*drawn.reshape(2, -1)).statistic, abs=1e-12)


def test_a_map_without_order_tells_nothing_of_another():
    assert rank_correlation(torch.zeros(3, 3), torch.eye(3)) == 0
    assert rank_correlation(torch.ones(3, 3), torch.ones(3, 3)) == 0


def test_maps_of_different_sizes_are_refused():
    with pytest.raises(ValueError, match="no positions in common"):
        rank_correlation(torch.zeros(3, 3), torch.zeros(3, 4))

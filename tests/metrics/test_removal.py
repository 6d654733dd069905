"""Deletion and insertion, on images whose answers are counted by hand."""

import pytest
import torch

from excite.metrics.removal import area, replaced, shares, steps_between

PICTURE = torch.tensor([[[8.0, 4.0], [2.0, 1.0]]])
NOTHING = torch.zeros(1, 2, 2)


@pytest.mark.parametrize("together", [1, 2, 5, 100])
@pytest.mark.parametrize(
    ("importance", "expected"),
    [
        (PICTURE[0], [15, 7, 3, 1, 0]),
        (-PICTURE[0], [15, 14, 12, 8, 0]),
        (torch.zeros(2, 2), [15, 7, 3, 1, 0]),  # pixels of one importance go row by row
    ],
)
def test_most_important_pixels_go_first(importance, expected, together):
    groups = []

    def brightness(pictures):
        groups.append(len(pictures))
        return pictures.sum((1, 2, 3)).tolist()

    assert steps_between(PICTURE, NOTHING, importance, brightness, steps=4, together=together) == expected
    assert (max(groups) <= together, sum(groups)) == (True, 5)


def test_all_channels_of_a_pixel_go_at_once_and_the_picture_stays():
    picture = torch.arange(12.0).view(3, 2, 2) + 1
    before = picture.clone()
    mixed = replaced(picture, torch.zeros(3, 2, 2), torch.tensor([3, 0, 1, 2]), 0.5)
    assert torch.equal(mixed == 0, torch.tensor([[True, False], [False, True]]).expand(3, 2, 2))
    assert torch.equal(picture, before)


def test_shares_and_areas():
    assert (shares(5)[0], shares(5)[-1]) == (0, 1)
    assert area([1, 1, 1]) == 1
    assert area([1, 0, 0, 0, 0]) == 0.125  # trapezoids: half of the first quarter

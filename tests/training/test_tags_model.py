"""The chunked loss, the average precision of each tag, and the rate, against plain computations."""

import numpy as np
import pytest
import torch
from scipy.sparse import csc_array
from torch import nn
from torch.nn import functional

from excite.errors import ModelError
from excite.metrics.ranking import average_precision
from excite.training.output_layer import Output
from excite.training.tags import model as loss
from excite.training.tags import validation as measuring
from excite.training.tags.loop import PlateauSchedule, TrainingOptions
from excite.training.tags.model import linear_loss, logits_loss, set_frequency_biases
from excite.training.tags.validation import Precisions, extremes, logits_of, precisions_of, save_measures

UNITS = torch.tensor([[3, 0, 22, -1, -1], [4, 4, 4, 4, 4], [-1, -1, -1, -1, -1], [22, 3, 22, 3, -1], [0, 1, 2, 3, 4]])


@pytest.fixture
def layer():
    random = torch.Generator().manual_seed(0)
    shapes = (len(UNITS), 6), (23, 6), (23,)
    return [(9 * torch.randn(shape, dtype=torch.float64, generator=random)).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("chunk", [1, 7, 50, 10**6, None])
def test_value_and_gradients(layer, chunk, monkeypatch):
    """Of a linear layer in chunks, or of given logits (None)."""
    features, weight, bias = layer
    logits = features @ weight.T + bias
    assert logits.abs().max() > 100  # also where softplus is usually cut short
    monkeypatch.setattr(loss, "CHUNK", chunk or loss.CHUNK)
    found = linear_loss(features, weight, bias, UNITS) if chunk else logits_loss(features @ weight.T + bias, UNITS)
    truth = torch.zeros_like(logits)
    for row, units in enumerate(UNITS.tolist()):
        truth[row, [unit for unit in units if unit >= 0]] = 1
    usual = functional.binary_cross_entropy_with_logits(logits, truth, reduction="sum")
    assert torch.allclose(found, usual, rtol=1e-12, atol=1e-10)
    gradients = (torch.autograd.grad(each / 5, layer) for each in (found, usual))
    for mine, theirs in zip(*gradients, strict=True):
        assert (mine - theirs).abs().max() < 1e-10


def test_only_the_gradients_that_are_needed(layer):
    features, weight, bias = layer
    found = linear_loss(features.detach(), weight, bias, UNITS)
    found.backward()
    assert features.grad is None
    assert weight.grad is not None
    with torch.no_grad():
        assert linear_loss(features, weight, bias, UNITS) == found
    empty = linear_loss(torch.zeros(0, 4), torch.zeros(3, 4), torch.zeros(3), torch.zeros(0, 5, dtype=torch.int32))
    assert empty == 0


def test_biases_begin_at_the_frequencies():
    layer = torch.nn.Linear(4, 2)
    set_frequency_biases(layer, torch.tensor([49, 0]).numpy(), 99)
    assert layer.bias.sigmoid().tolist() == pytest.approx([0.495, 0.005])
    with pytest.raises(ModelError, match="has no biases"):
        set_frequency_biases(torch.nn.Linear(4, 2, bias=False), torch.tensor([49, 0]).numpy(), 99)


PICTURES, TAGS = 40, 11


@pytest.mark.parametrize("at_once", [1, 100, 10**6])
@pytest.mark.parametrize("constant", [False, True])
def test_precision_as_one_by_one(monkeypatch, at_once, constant):
    monkeypatch.setattr(measuring, "SCORES", at_once)
    random = np.random.default_rng(0)
    scores = random.integers(0, 1 if constant else 6, (TAGS, PICTURES)).astype(np.float32)  # many are equal
    truth = random.random((PICTURES, TAGS)) < 0.2
    truth[:, 3] = False
    layer = nn.Linear(TAGS, TAGS)
    layer.weight.data, layer.bias.data = torch.eye(TAGS), torch.zeros(TAGS)
    nowhere = csc_array(np.zeros_like(truth))
    found, nothing = precisions_of(Output(layer, ()), torch.from_numpy(scores.T), [csc_array(truth), nowhere])
    expected = [average_precision(scores[tag], truth[:, tag]) for tag in range(TAGS)]
    assert expected.pop(3) is None
    assert np.isnan(found.precision[3])
    assert np.delete(found.precision, 3) == pytest.approx(expected)
    assert found.counts.tolist() == truth.sum(0).tolist()
    assert found.share.tolist() == truth.mean(0).tolist()
    assert nothing.means() == {"map": None, "map_by_frequency": None, "ratio": None}
    assert not constant or found.means()["ratio"] == pytest.approx(1)


@pytest.mark.parametrize("tail", [False, True])
def test_scores_of_an_output_layer(tail):
    torch.manual_seed(0)
    layer = nn.Conv2d(4, TAGS, 1) if tail else nn.Linear(4, TAGS)
    features = (torch.randn(600, 4, 2, 2) if tail else torch.randn(600, 4)).half()
    output = Output(layer, ())
    expected = output(features.float()).detach().numpy().T
    assert np.allclose(logits_of(output, features, 2, 7), expected[2:7], atol=1e-5)


def test_written_for_all_tags(tmp_path):
    found = Precisions(np.array([1, 0]), np.array([0.25, np.nan]), np.array([0.125, 0]))
    save_measures(["a,b", "日本"], found, found, tmp_path / "m.csv")
    lines = (tmp_path / "m.csv").read_text().splitlines()
    assert lines[1] == '"a,b",1,0.250000,0.125000,1,0.250000,0.125000'
    assert lines[2] == "日本,0,,0.000000,0,,0.000000"
    assert extremes(["a,b", "日本"], found) == {"best": {"a,b": 0.25}, "worst": {"a,b": 0.25}}


@pytest.mark.parametrize(("steps", "checks", "expected"), [(10, 4, 4), (3, 4, 3), (1, 4, 1), (10, 99, 10)])
def test_checks_are_spread_and_end_each_epoch(steps, checks, expected):
    found = [step for step in range(1, 3 * steps + 1) if TrainingOptions(checks=checks).is_check(step, steps)]
    assert len(found) == 3 * expected
    assert {steps, 2 * steps, 3 * steps} <= set(found)


class TestRate:
    FALLING = tuple(100 * 0.99**k for k in range(40))

    def after(self, losses):
        """The rate after these losses, beginning at 1, and whether the training is over."""
        sgd = torch.optim.SGD([nn.Parameter(torch.zeros(1))], 1.0)
        schedule = PlateauSchedule(sgd)
        for each in losses:
            schedule.step(each)
        return sgd.param_groups[0]["lr"], schedule.is_over

    @pytest.mark.parametrize(
        ("more", "rate"),
        [
            ([], 1),
            ([FALLING[-1]] * 2, 1),
            ([FALLING[-1] * 0.9995] * 3, 0.1),
            ([200, 200, 200], 0.1),  # a rise is no gain
            ([200, 200, 200, 190, 180, 170], 0.1),  # compared with the last loss of the rate before, not with its best
        ],
    )
    def test_lowered_only_when_nothing_is_gained(self, more, rate):
        assert self.after([*self.FALLING, *more]) == (rate, False)

    def test_three_times_at_most_and_then_it_is_over(self):
        rates = [self.after([1.0] * checks) for checks in (3, 4, 7, 10, 12, 13)]
        assert rates == [(1, False), (0.1, False), (0.01, False), (0.001, False), (0.001, False), (0.001, True)]

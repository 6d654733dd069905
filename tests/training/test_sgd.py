"""Gradient descent on an output layer: until it plateaus, and resumed before any epoch."""

import pytest
import torch
from torch import nn

from excite.errors import ModelError
from excite.training.output_layer import Output
from excite.training.sgd import OutputTrainer, SGDOptions, plateaued


def batch(pictures=40, categories=3, features=5):
    seen = torch.randn(pictures, features, generator=torch.Generator().manual_seed(0))
    truth = (seen[:, :categories] > 0).float()
    return seen, truth, torch.ones_like(truth)


def fit(**options):
    torch.manual_seed(0)
    return OutputTrainer(Output(nn.Linear(5, 3), ()), SGDOptions(**options))


def same(one, other):
    return all(map(torch.equal, one.output.parameters(), other.output.parameters()))


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([], False),
        ([10.0] * 6, False),  # too few to tell
        ([10.0] * 7, True),
        ([11.0, 5.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.4], False),  # 0.6 of 9.6
        ([11.0, 5.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.6], True),  # 0.4 of 9.4
        ([11.0, 5.0, 2.0, 1.4, 2.0, 2.0, 2.0, 2.0], False),  # the best of the five counts
        ([11.0, 5.0, 2.0, 1.4, 2.0, 2.0, 2.0, 2.0, 2.0], True),
    ],
)
def test_the_last_five_must_bring_a_twentieth_of_everything(losses, expected):
    assert plateaued(losses) is expected


def test_the_loss_is_summed_over_categories_and_averaged_over_pictures():
    trained = fit(rate=0.0, batch=7)
    features, present, sure = batch()
    trained.epoch(features, present, sure)
    probability = trained.output(features).detach().sigmoid()
    expected = -(present * probability.log() + (1 - present) * (1 - probability).log()).sum(1).mean()
    assert trained.losses == [pytest.approx(float(expected), rel=1e-5)]
    with pytest.raises(ModelError, match="lower --rate"):
        fit(rate=1e38, batch=2).epoch(*batch())


def test_what_nobody_is_sure_of_teaches_nothing():
    features, present, sure = batch()
    sure[::2, 1] = 0
    turned = present.clone()
    turned[::2, 1] = 1 - turned[::2, 1]
    one, other = fit(), fit()
    one.epoch(features, present, sure)
    other.epoch(features, turned, sure)
    assert same(one, other)
    other.epoch(features, turned, torch.ones_like(sure))
    one.epoch(features, present, torch.ones_like(sure))
    assert not same(one, other)


@pytest.mark.parametrize("stopped", [0, 3])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_it_goes_on_as_if_it_had_not_been_stopped(stopped, momentum, tmp_path):
    path = tmp_path / "checkpoint"
    whole, first, second = (fit(momentum=momentum) for _ in range(3))
    for trained, epochs in ((whole, 5), (first, stopped)):
        for _ in range(epochs):
            trained.epoch(*batch())
    first.save(path, "key")
    second.resume(path, "another training")
    second.resume(tmp_path / "none", "key")
    assert second.losses == []
    assert same(second, fit())
    second.resume(path, "key")
    for _ in range(5 - stopped):
        second.epoch(*batch())
    assert second.losses == whole.losses
    assert same(whole, second)


def test_damage_is_told(tmp_path):
    path = tmp_path / "checkpoint"
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(ModelError, match="remove it to begin again"):
        fit().resume(path, "key")
    trained = fit()
    trained.losses = ["low"]
    trained.save(path, "key")
    with pytest.raises(ModelError, match=r"damaged \(its losses are no numbers\)"):
        fit().resume(path, "key")

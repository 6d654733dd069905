"""Gradient descent on an output layer: until it plateaus, and resumed before any epoch."""

import pytest
import torch
from torch import nn

from excite.errors import ModelError
from excite.training.output_layer import Output
from excite.training.sgd import OutputTrainer, SGDOptions, plateaued


def batch(pictures=40, categories=3, features=5, seed=0):
    random = torch.Generator().manual_seed(seed)
    seen = torch.randn(pictures, features, generator=random)
    truth = (seen[:, :categories] > 0).float()
    return seen, truth, torch.ones_like(truth)


def fit(**options):
    torch.manual_seed(0)
    return OutputTrainer(Output(nn.Linear(5, 3), ()), SGDOptions(**options))


def weights(trained):
    return [tensor.clone() for tensor in trained.output.state_dict().values()]


class TestPlateau:
    def test_the_last_five_must_bring_a_twentieth_of_everything(self):
        assert not plateaued([])
        assert not plateaued([10.0] * 6)  # too few to tell
        assert plateaued([10.0] * 7)
        start = [11.0, 5.0, 2.0]
        assert not plateaued([*start, 2.0, 2.0, 2.0, 2.0, 1.4])  # 0.6 of 9.6
        assert plateaued([*start, 2.0, 2.0, 2.0, 2.0, 1.6])  # 0.4 of 9.4
        assert not plateaued([*start, 1.4, 2.0, 2.0, 2.0, 2.0])  # the best of the five counts
        assert plateaued([*start, 1.4, 2.0, 2.0, 2.0, 2.0, 2.0])


class TestFit:
    def test_the_loss_is_summed_over_categories_and_averaged_over_pictures(self):
        trained = fit(rate=0.0, batch=7)
        features, present, sure = batch()
        trained.epoch(features, present, sure)
        probability = trained.output(features).detach().sigmoid()
        expected = -(present * probability.log() + (1 - present) * (1 - probability).log()).sum(1).mean()
        assert trained.losses == [pytest.approx(float(expected), rel=1e-5)]

    def test_what_nobody_is_sure_of_teaches_nothing(self):
        features, present, sure = batch()
        sure[::2, 1] = 0
        turned = present.clone()
        turned[::2, 1] = 1 - turned[::2, 1]
        one, other = fit(), fit()
        one.epoch(features, present, sure)
        other.epoch(features, turned, sure)
        assert all(torch.equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))
        other.epoch(features, turned, torch.ones_like(sure))
        one.epoch(features, present, torch.ones_like(sure))
        assert not torch.equal(weights(one)[0], weights(other)[0])

    def test_a_rate_that_is_too_high_is_told(self):
        with pytest.raises(ModelError, match="lower --rate"):
            fit(rate=1e38, batch=2).epoch(*batch())


class TestResuming:
    @pytest.mark.parametrize("stopped", [0, 3])
    @pytest.mark.parametrize("momentum", [0.0, 0.9])
    def test_it_goes_on_as_if_it_had_not_been_stopped(self, stopped, momentum, tmp_path):
        path = tmp_path / "checkpoint"
        whole, first, second = (fit(momentum=momentum) for _ in range(3))
        for trained, epochs in ((whole, 5), (first, stopped)):
            for _ in range(epochs):
                trained.epoch(*batch())
        first.save(path, "key")
        second.resume(path, "key")
        for _ in range(5 - stopped):
            second.epoch(*batch())
        assert second.losses == whole.losses
        assert all(torch.equal(a, b) for a, b in zip(weights(whole), weights(second), strict=True))

    def test_another_training_is_not_gone_on_with(self, tmp_path):
        path = tmp_path / "checkpoint"
        first, second = fit(), fit()
        first.epoch(*batch())
        first.save(path, "key")
        before = weights(second)
        second.resume(path, "other")
        second.resume(tmp_path / "none", "key")
        assert second.losses == []
        assert all(torch.equal(a, b) for a, b in zip(before, weights(second), strict=True))

    def test_damage_is_told(self, tmp_path):
        path = tmp_path / "checkpoint"
        path.write_bytes(b"nothing of the kind")
        with pytest.raises(ModelError, match="remove it to begin again"):
            fit().resume(path, "key")

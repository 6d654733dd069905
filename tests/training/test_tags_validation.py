"""Average precision of thousands of tags is that of each, and the schedule follows the losses."""

import numpy as np
import pytest
import torch
from torch import nn

from excite.metrics.ranking import average_precision
from excite.training.output_layer import Output
from excite.training.tags import validation as measuring
from excite.training.tags.loop import Schedule
from excite.training.tags.validation import Precisions, extremes, precisions_of, save_measures, scores_by_tag

PICTURES, TAGS = 40, 11


@pytest.fixture
def world():
    random = np.random.default_rng(0)
    scores = random.integers(0, 6, (TAGS, PICTURES)).astype(np.float32)  # many are equal
    truth = random.random((PICTURES, TAGS)) < 0.2
    truth[:, 3] = False
    return scores, truth


class TestPrecision:
    @pytest.mark.parametrize("at_once", [1, 100, 10**6])
    def test_as_one_by_one(self, world, monkeypatch, at_once):
        monkeypatch.setattr(measuring, "SCORES", at_once)
        scores, truth = world
        pairs = np.argwhere(truth)
        found, nothing = precisions_of(lambda start, end: scores[start:end], [pairs, pairs[:0]], PICTURES, TAGS)
        for tag in range(TAGS):
            expected = average_precision(scores[tag], truth[:, tag])
            assert (np.isnan(found.precision[tag]) and tag == 3) or found.precision[tag] == pytest.approx(expected)
        assert found.counts.tolist() == truth.sum(0).tolist()
        assert found.share.tolist() == truth.mean(0).tolist()
        assert nothing.means() == {"map": None, "map_by_frequency": None, "ratio": None}

    def test_by_frequency_is_what_a_constant_score_gives(self, world):
        _, truth = world
        constant = np.zeros((TAGS, PICTURES), np.float32)
        (found,) = precisions_of(lambda start, end: constant[start:end], [np.argwhere(truth)], PICTURES, TAGS)
        means = found.means()
        assert means["ratio"] == pytest.approx(1)
        seen = [average_precision(constant[tag], truth[:, tag]) for tag in range(TAGS) if tag != 3]
        assert means["map_by_frequency"] == pytest.approx(np.mean(seen))

    @pytest.mark.parametrize("tail", [False, True])
    def test_scores_of_an_output_layer(self, tail):
        torch.manual_seed(0)
        layer = nn.Conv2d(4, TAGS, 1) if tail else nn.Linear(4, TAGS)
        features = torch.randn(600, 4, 2, 2) if tail else torch.randn(600, 4)
        output = Output(layer, ())
        columns = scores_by_tag(output, features.half())
        expected = output(features.half().float()).detach().numpy().T
        assert np.allclose(columns(2, 7), expected[2:7], atol=1e-5)

    def test_written_for_all_tags(self, tmp_path):
        found = Precisions(np.array([1, 0]), np.array([0.25, np.nan]), np.array([0.125, 0]))
        save_measures(["a,b", "日本"], found, found, tmp_path / "m.csv")
        lines = (tmp_path / "m.csv").read_text().splitlines()
        assert lines[1] == '"a,b",1,0.250000,0.125000,1,0.250000,0.125000'
        assert lines[2] == "日本,0,,0.000000,0,,0.000000"
        assert extremes(["a,b", "日本"], found) == {"best": {"a,b": 0.25}, "worst": {"a,b": 0.25}}


class TestSchedule:
    @pytest.mark.parametrize(("pictures", "checks", "expected"), [(100, 4, 4), (30, 4, 3), (1, 4, 1), (100, 99, 10)])
    def test_checks_are_spread_and_end_each_epoch(self, pictures, checks, expected):
        schedule = Schedule(pictures, batch=10, epochs=3, checks=checks)
        found = [step for step in range(1, schedule.steps + 1) if schedule.is_check(step)]
        assert len(found) == 3 * expected
        assert {schedule.epoch_steps * epoch for epoch in (1, 2, 3)} <= set(found)

    def test_lowered_only_when_nothing_is_gained(self):
        schedule = Schedule(10, rate=1.0)
        falling = [100 * 0.99**k for k in range(40)]
        assert schedule.rate_after(falling) == 1
        assert schedule.rate_after([*falling, *[falling[-1]] * 2]) == 1
        assert schedule.rate_after([*falling, *[falling[-1] * 0.9995] * 3]) == pytest.approx(0.1)
        assert schedule.rate_after([*falling, 200, 200, 200]) == pytest.approx(0.1)  # a rise is no gain

    def test_three_times_at_most_and_then_it_is_over(self):
        schedule = Schedule(10, rate=1.0)
        flat = [1.0] * 13
        assert [schedule.rate_after(flat[:k]) for k in (3, 4, 7, 10, 13)] == pytest.approx([1, 0.1, 0.01, 0.001, 0.001])
        assert not schedule.is_over(flat[:12])
        assert schedule.is_over(flat)

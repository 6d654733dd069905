"""What each check says of what was measured: good, doubtful and bad measurements, made up by hand."""

import copy

import pytest

from excite.experiments.checks.mass import judge_mass, judge_response, judge_values
from excite.experiments.checks.perturbation import judge_classes, judge_independence, judge_removal, judge_stability

PICTURES = 6

MASS = {
    "reading": "low",
    "layers": {"high": 1.0, "low": 0.6},
    "read": 0.6,
    "heard": 1.0,
    "negative": 0.0,
    "finite": True,
}
VALUES = {"while": 0.0, "after": 0.0, "rounding": 1e-6}
RESPONSE = {"reading": "low", "repeats": True, "expected": 1.0, "found": 1.0, "step": 1e-3, "bend": 0.0}
RANDOM = {"shares": [0.25, 0.5, 1.0], "curves": {"c-mwp": [0.9, 0.1, 0.0], "mwp": [0.9, 0.8, 0.7]}}
CLASSES = {"likeness": {"c-mwp": [0.1, 0.3], "mwp": [0.9, 0.9]}}
STABLE = {"likeness": {"c-mwp": {"noise": 0.95, "flip": 0.9, "shift": 0.85}}, "moved": {"c-mwp": 0.1}}


def fading(*, deletion, insertion):
    """Straight lines from 1, down to these values; 21 of them as the check has."""
    curves = {"deletion": deletion, "insertion": insertion}
    return {kind: {name: [level] * 21 for name, level in levels.items()} for kind, levels in curves.items()}


def judged(judge, measured, **changes):
    return judge([{**copy.deepcopy(measured), **changes}] * PICTURES, "c-mwp")


def test_mass():
    assert judged(judge_mass, MASS).standing == "holds"
    assert "0.60" in judged(judge_mass, MASS).sentences[0]
    assert judged(judge_mass, MASS, read=0.05).standing == "doubtful"


@pytest.mark.parametrize("broken", [{"read": 1.01}, {"negative": -0.01}, {"finite": False}, {"layers": {"high": 1.2}}])
def test_a_signal_that_grows_or_turns_is_a_fault(broken):
    verdict = judged(judge_mass, MASS, **broken)
    assert verdict.standing == "fails"
    assert "report" in verdict.sentences[0]


def test_response():
    assert judged(judge_response, RESPONSE).standing == "holds"
    assert "at least 99.9000% of the output's response" in judged(judge_response, RESPONSE, expected=0.999).sentences[0]
    assert judged(judge_response, RESPONSE, expected=0.7).standing == "fails"
    assert "only 70.0000%" in judged(judge_response, RESPONSE, expected=0.7).sentences[0]
    for doubt in ({"repeats": False}, {"bend": 1e6}, {"bend": 1.0, "expected": 0.0}):
        assert judged(judge_response, RESPONSE, **doubt).standing == "doubtful"
    one = judge_response([RESPONSE] * 5 + [{**RESPONSE, "found": 2.0}], "c-mwp")
    assert one.standing == "fails"
    assert one.rows == [{"layer": "low", "seen": "50.0000%", "may be missing": "2.0%", "step": "0.001"}]


def test_values():
    assert judged(judge_values, VALUES).standing == "holds"
    assert judged(judge_values, VALUES, rounding=0.5).standing == "doubtful"
    for when, words in (("while", "while it is explained"), ("after", "afterwards")):
        verdict = judged(judge_values, VALUES, **{when: 1e-7})
        assert verdict.standing == "fails"
        assert words in verdict.sentences[0]


@pytest.mark.parametrize(("left", "standing"), [(0.1, "holds"), (0.3, "doubtful"), (0.8, "fails")])
def test_randomisation_counts_from_the_half_on(left, standing):
    curves = {"c-mwp": [0.99, left, left], "mwp": [1.0, 1.0, 1.0]}
    verdict = judged(judge_independence, RANDOM, curves=curves)
    assert verdict.standing == standing
    assert f"{left:.2f}" in verdict.sentences[0]
    assert "mwp 1.00" in verdict.sentences[1]
    places, values = zip(*verdict.panels[0].lines["c-mwp"], strict=True)
    assert places == (0.0, 0.25, 0.5, 1.0)
    assert values == pytest.approx((1.0, 0.99, left, left))


def test_classes():
    assert judged(judge_classes, CLASSES).standing == "holds"
    assert judged(judge_classes, CLASSES, likeness={"c-mwp": [0.6], "mwp": [0.9]}).standing == "doubtful"
    assert judged(judge_classes, CLASSES, likeness={"c-mwp": [0.95], "mwp": [1.0]}).standing == "fails"
    no_better = judged(judge_classes, CLASSES, likeness={"c-mwp": [0.3], "mwp": [0.2]})
    assert no_better.standing == "doubtful"
    assert "no better" in no_better.sentences[-1]


def test_removal_says_plainly_who_is_best_at_what():
    best = judged(
        judge_removal, fading(deletion={"c-mwp": 0.1, "random": 0.4}, insertion={"c-mwp": 0.6, "random": 0.2})
    )
    assert best.standing == "holds"
    assert all("the best of all" in sentence for sentence in best.sentences)
    second = judged(
        judge_removal,
        fading(deletion={"c-mwp": 0.2, "lrp": 0.1, "random": 0.4}, insertion={"c-mwp": 0.6, "lrp": 0.5, "random": 0.2}),
    )
    assert second.standing == "holds"
    assert "Deletion: c-mwp 0.200 (0.200 to 0.200), not the best, which is lrp with 0.100" in second.sentences[0]
    assert "ahead by 0.100 (0.100 to 0.100); better than a random map, 0.400" in second.sentences[0]
    assert "the best of all" in second.sentences[1]


@pytest.mark.parametrize(
    ("deletion", "insertion"), [((0.5, 0.4), (0.6, 0.2)), ((0.1, 0.4), (0.1, 0.2)), ((0.4, 0.4), (0.6, 0.2))]
)
def test_no_better_than_chance_fails(deletion, insertion):
    levels = {
        kind: dict(zip(("c-mwp", "random"), values, strict=True))
        for kind, values in (("deletion", deletion), ("insertion", insertion))
    }
    assert judged(judge_removal, fading(**levels)).standing == "fails"


def test_better_than_chance_on_some_pictures_only_is_doubtful():
    good = fading(deletion={"c-mwp": 0.1, "random": 0.4}, insertion={"c-mwp": 0.6, "random": 0.2})
    bad = fading(deletion={"c-mwp": 0.6, "random": 0.4}, insertion={"c-mwp": 0.6, "random": 0.2})
    assert judge_removal([good, good, good, good, bad, bad], "c-mwp").standing == "doubtful"


def test_stability_is_as_good_as_its_worst():
    assert judged(judge_stability, STABLE).standing == "holds"
    for least, standing in ((0.6, "doubtful"), (0.2, "fails")):
        likeness = {"c-mwp": {"noise": 0.99, "flip": least, "shift": 0.99}}
        assert judged(judge_stability, STABLE, likeness=likeness).standing == standing

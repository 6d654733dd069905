"""What each check says of what was measured: good, doubtful and bad measurements, made up by hand."""

import pytest

from excite.experiments.checks.base import judge_mass, judge_response, judge_values
from excite.experiments.checks.perturbation import judge_classes, judge_independence, judge_removal, judge_stability

PICTURES = 6
MASS = {"reading": "low", "layers": {"high": 1.0, "low": 0.6}, "read": 0.6}
MASS |= {"heard": 1.0, "negative": 0.0, "finite": True}
VALUES = {"while": 0.0, "after": 0.0, "rounding": 1e-6}
RESPONSE = {"reading": "low", "repeats": True, "expected": 1.0, "found": 1.0, "step": 1e-3, "bend": 0.0}


def fading(deletion, insertion):
    """Flat curves at these levels; 21 values as the check has."""
    curves = {"deletion": deletion, "insertion": insertion}
    return {kind: {name: [level] * 21 for name, level in levels.items()} for kind, levels in curves.items()}


def moved(flip):
    return {"likeness": {"c-mwp": {"noise": 0.99, "flip": flip, "shift": 0.85}}, "moved": {"c-mwp": 0.1}}


def random(left):
    """The top half counts, and not what is above it."""
    return {"shares": [0.25, 0.5, 1.0], "curves": {"c-mwp": [0.99, left, left], "mwp": [1.0, 1.0, 1.0]}}


GOOD, BAD = {"c-mwp": 0.6, "random": 0.2}, {"c-mwp": 0.1, "random": 0.2}
LESS, MORE = {"c-mwp": 0.1, "random": 0.4}, {"c-mwp": 0.6, "random": 0.4}
SECOND = {"c-mwp": 0.2, "lrp": 0.1, "random": 0.4}, GOOD | {"lrp": 0.5}
CASES = [
    (judge_mass, MASS, "holds", "0.60"),
    (judge_mass, MASS | {"read": 0.05}, "doubtful", "that share only"),
    *(
        (judge_mass, MASS | broken, "fails", "please report it")
        for broken in ({"read": 1.01}, {"negative": -0.01}, {"finite": False}, {"layers": {"high": 1.2}})
    ),
    (judge_values, VALUES, "holds", "to the last bit"),
    (judge_values, VALUES | {"rounding": 0.5}, "doubtful", "most 0.5 of a map"),
    (judge_values, VALUES | {"while": 1e-7}, "fails", "while it is explained"),
    (judge_values, VALUES | {"after": 1e-7}, "fails", "afterwards"),
    (judge_response, RESPONSE, "holds", "at least 100.0000%"),
    (judge_response, RESPONSE | {"expected": 0.999}, "holds", "at least 99.9000% of the output's response"),
    (judge_response, RESPONSE | {"expected": 0.7}, "fails", "only 70.0000%"),
    *(
        (judge_response, RESPONSE | doubt, "doubtful", "cannot be verified")
        for doubt in ({"repeats": False}, {"bend": 1e6}, {"bend": 1.0, "expected": 0.0})
    ),
    (judge_independence, random(0.1), "holds", "with what it was is 0.10"),
    (judge_independence, random(0.3), "doubtful", "come only in part"),
    (judge_independence, random(0.8), "fails", "The others: mwp 1.00"),
    (judge_classes, {"likeness": {"c-mwp": [0.1, 0.3], "mwp": [0.9, 0.9]}}, "holds", "correlation 0.20"),
    (judge_classes, {"likeness": {"c-mwp": [0.6], "mwp": [0.9]}}, "doubtful", "differ a little"),
    (judge_classes, {"likeness": {"c-mwp": [0.95], "mwp": [1.0]}}, "fails", "nearly the same"),
    (judge_classes, {"likeness": {"c-mwp": [0.3], "mwp": [0.2]}}, "doubtful", "no better than maps without contrast"),
    (judge_removal, fading(LESS, GOOD), "holds", "Insertion: c-mwp 0.600 (0.600 to 0.600), the best of all"),
    (
        judge_removal,
        fading(*SECOND),
        "holds",
        "lrp with 0.100 (0.100 to 0.100), ahead by 0.100 (0.100 to 0.100); better",
    ),
    (judge_removal, fading(MORE, GOOD), "fails", "no better than a random map, 0.400"),
    (judge_removal, fading(LESS, BAD), "fails", "(more is better)"),
    (judge_removal, fading({"c-mwp": 0.4, "random": 0.4}, GOOD), "fails", "(less is better)"),
    (judge_stability, moved(0.9), "holds", "noise of 5 levels moves 0.10"),
    (judge_stability, moved(0.6), "doubtful", "mostly stay"),
    (judge_stability, moved(0.2), "fails", "do not stay"),
]


@pytest.mark.parametrize(("judge", "measured", "standing", "words"), CASES)
def test_verdicts(judge, measured, standing, words):
    verdict = judge([measured] * PICTURES, "c-mwp")
    assert verdict.standing == standing
    assert words in " ".join(verdict.sentences)


def test_one_bad_image_is_enough_to_fail_and_not_to_be_sure():
    one = judge_response([RESPONSE] * 5 + [{**RESPONSE, "found": 2.0}], "c-mwp")
    assert one.standing == "fails"
    assert one.rows == [{"layer": "low", "seen": "50.0000%", "may be missing": "2.0%", "step": "0.001"}]
    some = [fading(LESS, GOOD)] * 4 + [fading(MORE, GOOD)] * 2
    assert judge_removal(some, "c-mwp").standing == "doubtful"


def test_curves_begin_at_the_trained_network():
    (panel,) = judge_independence([random(0.1)] * PICTURES, "c-mwp").panels
    places, values = zip(*panel.lines["c-mwp"], strict=True)
    assert places == (0.0, 0.25, 0.5, 1.0)
    assert values == pytest.approx((1.0, 0.99, 0.1, 0.1))

"""What records of grounding say, counted by hand."""

import pytest

from excite.errors import DataError
from excite.experiments.grounding.measure import GAMMAS, PAPERS_GAMMAS
from excite.experiments.grounding.scores import (
    ChosenGamma,
    GroundingTable,
    Mention,
    RankingComparison,
    choose,
    mentions_of,
)
from excite.grounding.ground import GAMMA


def mention(picture, hit, scores=(3.0, 2.0, 1.0), *, text="a dog", groups=("animals",), small=False, pointed=None):
    return Mention(picture, text, groups, small, hit, scores, pointed)


def marks_of(mentions):
    return RankingComparison({"mwp": mentions}).scores("mwp")


class TestMarks:
    def test_recalls_and_curve(self):
        marks = marks_of([mention(0, 1), mention(0, 5, range(9, 0, -1)), mention(1, 11, [1.0] * 11), mention(1, None)])
        assert {rank: found.value for rank, found in marks.recalls.items()} == {1: 25, 5: 50, 10: 50}
        assert marks.curve == (25, 25, 25, 25, 50, 50, 50, 50, 50, 50)
        assert (marks.phrases, marks.pointing) == (4, None)

    def test_intervals_draw_pictures_not_phrases(self):
        """A hundred phrases of two images, of which one is all right: nobody knows anything of a third."""
        marks = marks_of([mention(0, 1)] * 50 + [mention(1, None)] * 50)
        found = marks.recalls[1]
        assert (found.low, found.value, found.high) == (0, 50, 100)

    def test_average_precisions(self):
        """Eleven recalls, of groups and of phrases; a phrase of two groups counts for both."""
        marks = marks_of(
            [
                mention(0, 1, [0.9, 0.5], text="The dog"),
                mention(1, 2, [0.8, 0.7], text="dog", groups=("animals", "other")),
                mention(1, None, [0.6], text="a man", groups=("people",)),
            ]
        )
        dogs = (6 * 1.0 + 5 * 2 / 3) / 11  # first right, second wrong, third right
        assert marks.map_group == pytest.approx(100 * (dogs + 0.5 + 0) / 3)
        assert marks.map_phrase == pytest.approx(100 * (dogs + 0) / 2)  # "The dog" and "dog" are one

    def test_a_hit_behind_the_scores_that_are_kept(self):
        marks = marks_of([mention(0, 101, [1.0] * 100)])
        assert (marks.map_phrase, marks.curve[-1]) == (0, 0)

    def test_different_phrases(self):
        with pytest.raises(DataError, match="different phrases"):
            RankingComparison({"mwp": [mention(0, 1)], "grad": [mention(1, 1)]})

    def test_a_gap_is_paired(self):
        """What is right in half of the images by both, and beyond that in one more by the first."""
        one = [mention(k, 1 if k % 2 else None) for k in range(20)]
        other = [mention(k, 1 if k % 2 and k != 7 else None) for k in range(20)]
        found = RankingComparison({"one": one, "other": other, "again": one})
        lead = found.lead("one", "other")
        assert lead.value == pytest.approx(5)
        assert (lead.low, lead.high) == (0, pytest.approx(15))
        assert found.lead("one", "again").high == 0


def hits(*ranks):
    """At the paper's gammas; at all others nothing is right."""
    of_gamma = dict(zip(PAPERS_GAMMAS, ranks, strict=True))
    return [{"union": of_gamma.get(gamma), "any": 1} for gamma in GAMMAS]


class TestChoosing:
    def test_the_best_mean_of_three_recalls(self):
        first = {"found": [{"method": "mwp", "hits": hits(1, 6, 2, None, 9)}]}
        second = {"found": [{"method": "mwp", "hits": hits(None, 6, 5, 1, 9)}]}
        chosen = choose([{"phrases": [first]}, {"phrases": [second]}], "union")["mwp"]
        assert chosen.curve[::5] == pytest.approx([50, 100 / 3, 200 / 3, 50, 100 / 3])
        assert chosen.gamma == 0.5

    def test_of_equals_the_one_nearest_to_the_default(self):
        same = [{"phrases": [{"found": [{"method": "mwp", "hits": hits(1, 1, 1, 1, 1)}]}]}]
        assert choose(same, "any")["mwp"].gamma == GAMMA
        assert choose(same, "any", PAPERS_GAMMAS)["mwp"].gamma == 0.5


def record(**more):
    found = {"method": "mwp", "hits": {"union": None, "any": 2}, "scores": [2.0, 1.0]}
    phrase = {
        "text": "it",
        "groups": ["other"],
        "small": {"union": False, "any": True},
        "known": False,
        "skipped": ["Zebra"],
        "own_hits": {"union": 1, "any": None},
        "found": [{**found, "pointed": {"union": True, "any": False}}],
    }
    return {"own_scores": [0.5], "phrases": [phrase], "seconds": {"looking": 2.0, "scoring": 0.5}, **more}


class TestRecords:
    def test_mentions_by_truth(self):
        (union,), (any_) = mentions_of([record()], "mwp", "union"), mentions_of([record()], "mwp", "any")[0]
        assert (union.hit, union.small, union.pointed, union.scores) == (None, False, True, [2.0, 1.0])
        assert (any_.hit, any_.small, any_.pointed) == (2, True, False)
        (own,) = mentions_of([record()], "proposals", "union")
        assert (own.hit, own.scores, own.pointed, own.groups) == (1, [0.5], None, ("other",))

    def test_of_another_experiment(self):
        with pytest.raises(DataError, match="nothing of grad"):
            mentions_of([record()], "grad", "union")

    def test_nothing_small(self):
        told = GroundingTable({"mwp": [mention(0, 2)]}, []).row("mwp", ChosenGamma(None)).to_dict()
        assert [told[f"{name}_small"] for name in ("r1", "r5", "r10", "map_group", "map_phrase", "pointing")] == [
            None
        ] * 6
        assert (told["phrases_small"], told["map_group"]) == (0, pytest.approx(50))

    def test_no_phrases(self):
        with pytest.raises(DataError, match="no phrases to count"):
            GroundingTable({"mwp": []}, [])

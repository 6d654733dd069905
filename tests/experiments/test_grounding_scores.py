"""What records of grounding say, counted by hand; and ranked boxes of other systems, from files."""

import json

import pytest

from excite.errors import DataError
from excite.experiments.grounding.measure import (
    GAMMAS,
    PAPERS_GAMMAS,
    ChosenGamma,
    GroundingTable,
    Mention,
    RankingComparison,
    choose,
    mentions_of,
)
from excite.experiments.grounding.run import read_results
from excite.grounding.ground import GAMMA

DOG = {"image": "a.jpg", "phrase": "A  dog", "boxes": [[0, 0, 9, 9], [0, 0, 4, 4]], "scores": [0.1, 0.9]}


def mention(picture, hit, scores=(3.0, 2.0, 1.0), *, text="a dog", groups=("animals",)):
    return Mention(picture, text, groups, False, hit, scores, None)


def scores_of(*mentions):
    return RankingComparison({"mwp": mentions}).scores("mwp")


class TestScores:
    def test_recalls_and_curve(self):
        found = scores_of(mention(0, 1), mention(0, 5, range(9, 0, -1)), mention(1, 11, [1.0] * 11), mention(1, None))
        assert {rank: recall.value for rank, recall in found.recalls.items()} == {1: 25, 5: 50, 10: 50}
        assert found.curve == (25, 25, 25, 25, 50, 50, 50, 50, 50, 50)
        assert (found.phrases, found.pointing) == (4, None)

    def test_intervals_draw_pictures_not_phrases(self):
        """A hundred phrases of two images, of which one is all right: nobody knows anything of a third."""
        found = scores_of(*[mention(0, 1)] * 50, *[mention(1, None)] * 50).recalls[1]
        assert (found.low, found.value, found.high) == (0, 50, 100)

    def test_average_precisions(self):
        """Eleven recalls, of groups and of phrases; a phrase of two groups counts for both."""
        found = scores_of(
            mention(0, 1, [0.9, 0.5], text="The dog"),
            mention(1, 2, [0.8, 0.7], text="dog", groups=("animals", "other")),
            mention(1, None, [0.6], text="a man", groups=("people",)),
        )
        dogs = (6 * 1.0 + 5 * 2 / 3) / 11  # first right, second wrong, third right
        assert found.map_group == pytest.approx(100 * (dogs + 0.5 + 0) / 3)
        assert found.map_phrase == pytest.approx(100 * (dogs + 0) / 2)  # "The dog" and "dog" are one
        behind = scores_of(mention(0, 101, [1.0] * 100))  # the scores that are kept
        assert (behind.map_phrase, behind.curve[-1]) == (0, 0)

    def test_a_gap_is_paired(self):
        """What is right in half of the images by both, and beyond that in one more by the first."""
        one = [mention(k, 1 if k % 2 else None) for k in range(20)]
        other = [mention(k, 1 if k % 2 and k != 7 else None) for k in range(20)]
        found = RankingComparison({"one": one, "other": other, "again": one})
        lead = found.lead("one", "other")
        assert (lead.value, lead.low, lead.high) == (pytest.approx(5), 0, pytest.approx(15))
        assert found.lead("one", "again").high == 0

    def test_different_phrases_or_none(self):
        with pytest.raises(DataError, match="different phrases"):
            RankingComparison({"mwp": [mention(0, 1)], "grad": [mention(1, 1)]})
        with pytest.raises(DataError, match="no phrases to count"):
            GroundingTable({"mwp": []}, [])

    def test_nothing_small(self):
        told = GroundingTable({"mwp": [mention(0, 2)]}, []).row("mwp", ChosenGamma(None)).to_dict()
        measures = ("r1", "r5", "r10", "map_group", "map_phrase", "pointing")
        assert [told[f"{name}_small"] for name in measures] == [None] * 6
        assert (told["phrases_small"], told["map_group"]) == (0, pytest.approx(50))


def hits(*ranks):
    """At the paper's gammas; at all others nothing is right."""
    of_gamma = dict(zip(PAPERS_GAMMAS, ranks, strict=True))
    return {"found": [{"method": "mwp", "hits": [{"union": of_gamma.get(gamma), "any": 1} for gamma in GAMMAS]}]}


def test_gamma_has_the_best_mean_of_three_recalls():
    records = [{"phrases": [hits(1, 6, 2, None, 9)]}, {"phrases": [hits(None, 6, 5, 1, 9)]}]
    chosen = choose(records, "union")["mwp"]
    assert chosen.curve[::5] == pytest.approx([50, 100 / 3, 200 / 3, 50, 100 / 3])
    assert chosen.gamma == 0.5
    assert choose(records, "any")["mwp"].gamma == GAMMA  # of equals the one nearest to the default
    assert choose(records, "any", PAPERS_GAMMAS)["mwp"].gamma == 0.25


def test_mentions_by_truth():
    found = {"method": "mwp", "hits": {"union": None, "any": 2}, "scores": [2.0, 1.0]}
    phrase = {
        "text": "it",
        "groups": ["other"],
        "small": {"union": False, "any": True},
        "own_hits": {"union": 1, "any": None},
        "found": [{**found, "pointed": {"union": True, "any": False}}],
    }
    records = [{"own_scores": [0.5], "phrases": [phrase]}]
    (union,), (any_) = mentions_of(records, "mwp", "union"), mentions_of(records, "mwp", "any")[0]
    assert (union.hit, union.small, union.pointed, union.scores) == (None, False, True, [2.0, 1.0])
    assert (any_.hit, any_.small, any_.pointed) == (2, True, False)
    (own,) = mentions_of(records, "proposals", "union")
    assert (own.hit, own.scores, own.pointed, own.groups) == (1, [0.5], None, ("other",))
    with pytest.raises(DataError, match="nothing of grad"):
        mentions_of(records, "grad", "union")


def results(tmp_path, *entries, listed=False):
    path = tmp_path / "cca.json"
    path.write_text(json.dumps(entries) if listed else "".join(json.dumps(entry) + "\n\n" for entry in entries))
    return read_results("CCA", path)


def record(image, *texts):
    facts = {"groups": ["animals"], "boxes": [(0, 0, 9, 9)], "small": {"union": True, "any": False}}
    return {"image": image, "phrases": [{"text": text, **facts} for text in texts]}


class TestOtherSystems:
    @pytest.mark.parametrize("listed", [False, True])
    def test_best_first_by_score(self, tmp_path, listed):
        (found,), missing = results(tmp_path, DOG, listed=listed).mentions([record("a.jpg", "a dog")], "union")
        assert (found.hit, found.scores, found.pointed, missing) == (2, [0.9, 0.1], None, 0)
        assert (found.picture, found.text, found.groups, found.small) == (0, "a dog", ("animals",), True)

    @pytest.mark.parametrize(
        ("image", "called"),
        [
            *((image, called) for image in ("a.jpg", "train2014/a.jpg") for called in ("a", "a.jpg")),
            *(("36979", called) for called in ("36979", "36979.jpg", "36979.png")),  # Flickr30k's are numbers
        ],
    )
    def test_pictures_by_their_names(self, tmp_path, image, called):
        _, missing = results(tmp_path, {**DOG, "image": called}).mentions([record(image, "a dog")], "any")
        assert missing == 0

    def test_missing_ones_are_counted_and_missed(self, tmp_path):
        records = [record("a.jpg", "a cat", "a dog"), record("b.jpg", "a dog")]
        found, missing = results(tmp_path, DOG).mentions(records, "union")
        assert ([one.hit for one in found], [one.picture for one in found], missing) == ([None, 2, None], [0, 0, 1], 2)
        empty = results(tmp_path, {**DOG, "boxes": [], "scores": []}).mentions([record("a.jpg", "a dog")], "any")
        assert (empty[0][0].hit, empty[1]) == (None, 0)  # no boxes is an answer

    def test_the_same_words_twice(self, tmp_path):
        """One answer stands for all mentions; of several each takes its own."""
        other = {**DOG, "boxes": [[0, 0, 9, 9]], "scores": [1]}
        asked = [record("a.jpg", "a dog", "A dog", "a dog")]
        assert [one.hit for one in results(tmp_path, DOG).mentions(asked, "union")[0]] == [2, 2, 2]
        assert [one.hit for one in results(tmp_path, other, DOG).mentions(asked, "union")[0]] == [1, 2, 2]

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "no results"),
            ("{broken", "line 1: broken JSON"),
            ("[{broken", "broken JSON"),
            ("[3]", "entry 1: it is no result"),
            (json.dumps(DOG) + '\n{"image": "a.jpg"}', "line 2: it is no result"),
            (json.dumps({**DOG, "boxes": [[0, 0, 9, 9], [50, 60, 20, 10]]}), "a corner, width and height"),
            ('{"image": %s}' % ("9" * 5000), "line 1: broken JSON"),
            ("[%s]" % ("9" * 5000), "broken JSON"),
        ],
    )
    def test_other_files(self, tmp_path, text, words):
        path = tmp_path / "cca.jsonl"
        path.write_text(text)
        with pytest.raises(DataError, match=words):
            read_results("CCA", path)

    @pytest.mark.parametrize(
        "broken",
        [
            *({"scores": scores} for scores in ([1], [1, "2"], [1, float("nan")], [1, 10**400])),
            *({"boxes": [[0, 0, 9, 9], box]} for box in ([1, 2, 3], [1, 2, 3, True], [1, 2, 10**400, 3])),
        ],
    )
    def test_boxes_or_scores_that_are_none(self, tmp_path, broken):
        with pytest.raises(DataError, match="not four numbers and a score each"):
            results(tmp_path, DOG | broken)

    def test_words_may_hold_rarer_line_breaks(self, tmp_path):
        path = tmp_path / "cca.jsonl"
        path.write_text(json.dumps({**DOG, "phrase": "a\u2028dog"}, ensure_ascii=False) + "\r\n", encoding="utf-8")
        assert read_results("CCA", path).mentions([record("a.jpg", "a dog")], "union")[1] == 0
        with pytest.raises(DataError, match=r"none\.json"):
            read_results("CCA", tmp_path / "none.json")

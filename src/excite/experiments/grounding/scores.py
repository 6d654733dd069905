"""What the records of grounding say: gamma chosen on some images, recall told of the others."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from excite.errors import DataError
from excite.experiments.grounding.measure import GAMMAS, OWN
from excite.grounding.ground import GAMMA
from excite.metrics.phrases import class_precisions, phrase_class, recall_at
from excite.metrics.statistics import Estimate, interval, resampled_means

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from excite.jobs import Entry


# What ranked boxes are worth over many phrases: recall, average precision and pointing, with their intervals.

RANKS = (1, 5, 10)
"""The paper's N of R@N."""

CURVE = range(1, 11)


@dataclass(frozen=True, eq=False)
class Mention:
    """A phrase of an image, and what a ranking of boxes makes of it.

    Attributes:
        picture: the number of its image, from 0.
        text: as it was written.
        groups: the kinds of things that it counts for.
        small: whether what it refers to takes less than a quarter of the image.
        hit: the rank of the first box that matches, from 1; None where none does.
        scores: of the first boxes, best first.
        pointed: whether the map's maximum lies in what it refers to; None where there is no map.
    """

    picture: int
    text: str
    groups: tuple[str, ...]
    small: bool
    hit: int | None
    scores: Sequence[float]
    pointed: bool | None

    @property
    def scored_hit(self) -> int | None:
        """The first hit, where its score was written down: for average precision later ones do not matter."""
        return self.hit if self.hit is not None and self.hit <= len(self.scores) else None


@dataclass(frozen=True)
class Marks:
    """What a ranking is worth over some phrases, in percent.

    Attributes:
        phrases: how many.
        recalls: R@N for each N of `RANKS`: how many phrases have a right box among the first N.
        map_group: the mean over groups of their average precision; None where the data know no groups.
        map_phrase: the mean over different phrases of theirs.
        pointing: how often the map's maximum lies in what is meant; None where there are no maps.
        curve: the recall at each number of boxes of `CURVE`.
    """

    phrases: int
    recalls: Mapping[int, Estimate]
    map_group: float | None
    map_phrase: float
    pointing: Estimate | None
    curve: tuple[float, ...]


class Standing:
    """How several rankings stand on the same phrases: each by itself, and one against the other.

    Phrases of one image are no independent draws, so whole images are drawn again for intervals. All rankings are
    drawn alike: what is hard for both leaves their difference as it is.

    Args:
        mentions: what each ranking makes of the phrases, by its name; all in the same order. There is at least one.

    Raises:
        DataError: the rankings are not of the same phrases.

    Example:
        >>> dog, it = Mention(0, "a dog", (), False, 2, [0.9, 0.8], True), Mention(1, "it", (), False, None, [], False)
        >>> marks = Standing({"mwp": [dog, it]}).marks("mwp")
        >>> marks.recalls[1].value, marks.recalls[5].value, marks.pointing.value, marks.map_group
        (0.0, 50.0, 50.0, None)
    """

    def __init__(self, mentions: Mapping[str, Sequence[Mention]]) -> None:
        self._mentions = mentions
        places = [[(one.picture, one.text) for one in each] for each in mentions.values()]
        if any(each != places[0] for each in places):
            raise DataError("these rankings are of different phrases: compare those of one experiment")
        _, pictures = np.unique([picture for picture, _ in places[0]], return_inverse=True)
        tests = [*map(_within, RANKS), _pointed]
        passed = [[test(mention) for mention in each] for each in mentions.values() for test in tests]
        hits = [np.bincount(pictures, weights=each).astype(np.int64)[:, None] for each in passed]
        drawn = resampled_means(np.bincount(pictures)[:, None], hits)
        shares = [sum(each) / len(each) for each in passed]
        rows = range(0, len(passed), len(tests))
        self._shares = {name: shares[k : k + len(tests)] for name, k in zip(mentions, rows, strict=True)}
        self._drawn = {name: drawn[k : k + len(tests)] for name, k in zip(mentions, rows, strict=True)}

    def marks(self, name: str) -> Marks:
        """What one ranking is worth."""
        mentions = self._mentions[name]
        estimates = [_estimate(*both) for both in zip(self._shares[name], self._drawn[name], strict=True)]
        points = all(mention.pointed is not None for mention in mentions)
        hits = [mention.hit for mention in mentions]
        return Marks(
            len(mentions),
            dict(zip(RANKS, estimates, strict=False)),
            _mean_precision(mentions, [mention.groups for mention in mentions]),
            _mean_precision(mentions, [(phrase_class(mention.text),) for mention in mentions]) or 0.0,
            estimates[-1] if points else None,
            tuple(100 * (recall_at(hits, rank) or 0.0) for rank in CURVE),
        )

    def lead(self, one: str, other: str, rank: int = 1) -> Estimate:
        """By how many points the recall of one ranking is higher than that of another.

        Example:
            >>> hit, missed = (Mention(0, "a dog", (), False, rank, [], None) for rank in (1, None))
            >>> Standing({"mwp": [hit, hit], "grad": [hit, missed]}).lead("mwp", "grad").value
            50.0
        """
        at = RANKS.index(rank)
        return _estimate(self._shares[one][at] - self._shares[other][at], self._drawn[one][at] - self._drawn[other][at])


def group_recalls(mentions: Sequence[Mention], groups: Iterable[str], rank: int = 5) -> dict[str, float | None]:
    """The recall among the first boxes for each group, in percent; None for a group without phrases.

    Example:
        >>> group_recalls([Mention(0, "a dog", ("animals",), False, 2, [0.9, 0.8], True)], ["animals", "people"])
        {'animals': 100.0, 'people': None}
    """
    recalls = {group: recall_at((each.hit for each in mentions if group in each.groups), rank) for group in groups}
    return {group: None if recall is None else 100 * recall for group, recall in recalls.items()}


def _within(rank: int) -> Callable[[Mention], bool]:
    return lambda mention: mention.hit is not None and mention.hit <= rank


def _pointed(mention: Mention) -> bool:
    return bool(mention.pointed)


def _estimate(share: float, drawn: NDArray[np.float64]) -> Estimate:
    low, high = interval(drawn)
    return Estimate(100 * share, 100 * low, 100 * high)


def _mean_precision(mentions: Sequence[Mention], classes: Sequence[Sequence[str]]) -> float | None:
    """The mean over classes of their average precision, in percent; None without classes."""
    scores: list[Any] = [mention.scores for mention in mentions]
    found = class_precisions(classes, scores, [mention.scored_hit for mention in mentions])
    return 100 * sum(found.values()) / len(found) if found else None


# The rows of grounding's tables: what one way to rank boxes is worth.


@dataclass(frozen=True)
class Chosen:
    """The gamma of a method.

    Attributes:
        gamma: the one that is used; None where nothing is scored by area.
        curve: for each of `GAMMAS` the mean of R@1, R@5 and R@10 on the held-out images, in percent; none where
            somebody said which gamma it is.
    """

    gamma: float | None
    curve: tuple[float, ...] = ()


@dataclass(frozen=True)
class Row:
    """What one way to rank boxes is worth, on the images that nothing was chosen on.

    Attributes:
        model: the network's name; blank for a ranking that needs none.
        method: the method's, "proposals" for the proposals' own scores, or that of another system.
        layer: where it was read; blank where there is nothing to read.
        chosen: its gamma.
        all: over all phrases.
        small: over those that refer to less than a quarter of the image; None where there are none.
        groups: recall at 5 of each group, in percent; None for one without phrases.
        missing: how many phrases have no result (of another system's file): they count as missed.
    """

    model: str
    method: str
    layer: str
    chosen: Chosen
    all: Marks
    small: Marks | None
    groups: Mapping[str, float | None]
    missing: int = 0

    @property
    def group_mean(self) -> float | None:
        """The mean over groups of their recall at 5."""
        there = [recall for recall in self.groups.values() if recall is not None]
        return sum(there) / len(there) if there else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: percentages with two decimals."""
        return {
            "model": self.model,
            "method": self.method,
            "layer": self.layer,
            "gamma": self.chosen.gamma,
            **_plain(self.all, ""),
            **_plain(self.small, "_small"),
            "missing": self.missing,
        }


@dataclass(frozen=True)
class Lead:
    """How much better one row is than another, in points of recall, paired over images."""

    model: str
    method: str
    over: str
    r1: Estimate
    r1_small: Estimate | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        lead = {"model": self.model, "method": self.method, "over": self.over}
        for name, estimate in (("r1", self.r1), ("r1_small", self.r1_small)):
            lead |= _estimate_fields(name, estimate)
        return lead


def _plain(marks: Marks | None, ending: str) -> dict[str, Any]:
    """The marks as plain values; those that there are none of are None."""
    line: dict[str, Any] = {f"phrases{ending}": 0 if marks is None else marks.phrases}
    for rank in RANKS:
        line |= _estimate_fields(f"r{rank}{ending}", None if marks is None else marks.recalls[rank])
    line[f"map_group{ending}"] = _rounded(None if marks is None else marks.map_group)
    line[f"map_phrase{ending}"] = _rounded(None if marks is None else marks.map_phrase)
    return line | _estimate_fields(f"pointing{ending}", None if marks is None else marks.pointing)


def _estimate_fields(name: str, estimate: Estimate | None) -> dict[str, Any]:
    if estimate is None:
        return {name: None, f"{name}_interval": None}
    return {name: round(estimate.value, 2), f"{name}_interval": [round(estimate.low, 2), round(estimate.high, 2)]}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


# What the records of grounding say: gamma chosen on some images, recall told of the others.


def choose(records: Sequence[Entry], truth: str, among: Sequence[float] = GAMMAS) -> dict[str, Chosen]:
    """The gamma of each method with the best mean of R@1, R@5 and R@10; of equals the one nearest to `ground`'s own.

    Args:
        records: from `Grounding.choosing`.
        truth: one of `TRUTHS`.
        among: those of `GAMMAS` that may be chosen.

    Example:
        >>> hits = [{"union": 1 if gamma in {0.25, 0.3} else 2} for gamma in GAMMAS]
        >>> choose([{"phrases": [{"found": [{"method": "mwp", "hits": hits}]}]}], "union")["mwp"].gamma
        0.3
    """
    ranks: dict[str, list[Sequence[int | None]]] = {}
    for record in records:
        for phrase in record["phrases"]:
            for found in phrase["found"]:
                ranks.setdefault(found["method"], []).append([hit[truth] for hit in found["hits"]])
    return {method: _best(of_method, among) for method, of_method in ranks.items()}


def mentions_of(records: Sequence[Entry], method: str, truth: str) -> list[Mention]:
    """What a method, or the proposals' own scores, make of all phrases of the records.

    Raises:
        DataError: a phrase was not asked by that method.
    """
    return [
        _mention(number, record, phrase, method, truth)
        for number, record in enumerate(records)
        for phrase in record["phrases"]
    ]


class Table:
    """The rows that some rankings of the same phrases make.

    Args:
        mentions: what each ranking makes of all phrases, by its name.
        groups: the kinds of things that the data know.

    Raises:
        DataError: there are no phrases.
    """

    def __init__(self, mentions: Mapping[str, Sequence[Mention]], groups: Sequence[str]) -> None:
        if not all(mentions.values()):
            raise DataError("there are no phrases to count: give more images")
        small = {name: [one for one in each if one.small] for name, each in mentions.items()}
        self.mentions, self.groups = mentions, groups
        self.all = Standing(mentions)
        self.small = Standing(small) if all(small.values()) else None

    def row(self, method: str, chosen: Chosen, *, model: str = "", layer: str = "", missing: int = 0) -> Row:
        """The row of a ranking."""
        small = None if self.small is None else self.small.marks(method)
        groups = group_recalls(self.mentions[method], self.groups)
        return Row(model, method, layer, chosen, self.all.marks(method), small, groups, missing)

    def leads(self, model: str, main: str) -> list[Lead]:
        """How much better the main method is than each other ranking."""
        others = [other for other in self.mentions if other != main]
        small = [None if self.small is None else self.small.lead(main, other) for other in others]
        return [
            Lead(model, main, other, self.all.lead(main, other), lead)
            for other, lead in zip(others, small, strict=True)
        ]


def unknown_words(records: Sequence[Entry]) -> tuple[int, Counter[str]]:
    """How many phrases the classifier knows no word of, and which words it skipped how often.

    Example:
        >>> unknown_words([{"phrases": [{"known": False, "skipped": ["Gizmo"]}, {"known": True, "skipped": []}]}])
        (1, Counter({'gizmo': 1}))
    """
    phrases = [phrase for record in records for phrase in record["phrases"]]
    skipped = Counter(word.lower() for phrase in phrases for word in phrase["skipped"])
    return sum(not phrase["known"] for phrase in phrases), skipped


def empty_maps(records: Sequence[Entry]) -> dict[str, int]:
    """How many maps of each method have no evidence at all, where any has none: these rank nothing and point nowhere.

    Example:
        >>> found = [{"method": "mwp", "point": None}, {"method": "grad", "point": [1, 2]}]
        >>> empty_maps([{"phrases": [{"found": found}]}])
        {'mwp': 1}
    """
    phrases = [phrase for record in records for phrase in record["phrases"]]
    return dict(Counter(one["method"] for phrase in phrases for one in phrase["found"] if one["point"] is None))


def reach(records: Sequence[Entry], truth: str) -> float:
    """Of how many phrases, in percent, any of the proposals is right, once those that repeat others are dropped.

    Example:
        >>> reach([{"phrases": [{"own_hits": {"union": 7}}, {"own_hits": {"union": None}}]}], "union")
        50.0
    """
    hits = [phrase["own_hits"][truth] for record in records for phrase in record["phrases"]]
    return 100 * sum(hit is not None for hit in hits) / max(len(hits), 1)


def spent(records: Sequence[Entry]) -> dict[str, float]:
    """The seconds that each step took, all images together.

    Example:
        >>> spent([{"seconds": {"looking": 0.5}}, {"seconds": {"looking": 0.25}}])
        {'looking': 0.75}
    """
    total: Counter[str] = Counter()
    for record in records:
        total.update(record["seconds"])
    return dict(total)


def _best(ranks: Sequence[Sequence[int | None]], among: Sequence[float]) -> Chosen:
    """The gamma whose ranks, one for each gamma and phrase, are best."""
    curve = []
    for k in range(len(GAMMAS)):
        recalls = [recall_at((each[k] for each in ranks), rank) or 0.0 for rank in RANKS]
        curve.append(100 * sum(recalls) / len(recalls))
    worth = dict(zip(GAMMAS, curve, strict=True))
    best = max(among, key=lambda gamma: (worth[gamma], -abs(gamma - GAMMA)))
    return Chosen(best, tuple(curve))


def _mention(number: int, record: Entry, phrase: Entry, method: str, truth: str) -> Mention:
    said = (number, phrase["text"], tuple(phrase["groups"]), phrase["small"][truth])
    if method == OWN:
        return Mention(*said, phrase["own_hits"][truth], record["own_scores"], None)
    found = next((one for one in phrase["found"] if one["method"] == method), None)
    if found is None:
        raise DataError(f"these records have nothing of {method}: count those of one experiment at a time")
    return Mention(*said, found["hits"][truth], found["scores"], found["pointed"][truth])

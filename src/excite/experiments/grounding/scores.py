"""What the records of grounding say: gamma chosen on some pictures, recall told of the others."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from excite.errors import DataError
from excite.experiments.grounding.grounding_facts import OWN
from excite.experiments.grounding.grounding_marks import RANKS, Mention, Standing, group_recalls
from excite.experiments.grounding.grounding_rows import Chosen, Lead, Row
from excite.experiments.grounding.measure import GAMMAS
from excite.grounding.ground import GAMMA
from excite.metrics.phrase_ranking import recall_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from excite.jobs.ledger_init import Entry

__all__ = ["Table", "choose", "empty_maps", "mentions_of", "reach", "spent", "unknown_words"]


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
            raise DataError("there are no phrases to count: give more pictures")
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
    """The seconds that each step took, all pictures together.

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

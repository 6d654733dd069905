"""Published results of the experiments, read from ``published.toml``; methods have the names of `excite.METHODS`."""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import NamedTuple

Pair = tuple[float | None, float | None]
"""All and difficult, or all phrases and small instances, in percent; None where it is not published."""


class Published(NamedTuple):
    """A column of a published table of the Pointing Game; its scores are All and Difficult of each method."""

    source: str
    data: str
    network: str
    scores: Mapping[str, Pair]


class PublishedBoxes(NamedTuple):
    """A column of the paper's table on localisation: the threshold in means of the map, and the error in percent."""

    alpha: float | None
    error: float


class PublishedRanks(NamedTuple):
    """A line of the paper's table on grounding; the method may be "proposals", for their own scores."""

    method: str
    proposals: str
    gamma: float | None
    measures: tuple[Pair, ...]  # in the order of `MEASURES`


def _lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines()]


def _number(text: str) -> float | None:
    return None if text == "-" else float(text)


def _pair(text: str) -> Pair:
    first, second = map(_number, text.split("/"))
    return first, second


_DATA = tomllib.loads(files("excite.experiments").joinpath("published.toml").read_text("utf-8"))
_GROUNDING = _DATA["grounding"]
WORDS: Mapping[str, str] = _DATA["methods"]  # the names of the methods in publications
POINTING = {  # the published columns of each format of data, the paper's first
    data: tuple(
        Published(
            _DATA["sources"][source],
            table["data"],
            table["networks"][k],
            {method: _pair(line[k]) for method, *line in _lines(table["scores"]) if line[k] != "-"},
        )
        for k, source in enumerate(table["sources"])
    )
    for data, table in _DATA["pointing"].items()
}
CONTRAST: Mapping[str, str] = _DATA["contrast"]  # the paper's table on contrastive attention

# The paper's tables on the localisation of dominant objects and on Flickr30k Entities: network and data, and format.
LOCALIZED_ON, LOCALIZED_DATA = _DATA["localization"]["on"], _DATA["localization"]["format"]
LOCALIZATION = {
    method: PublishedBoxes(_number(alpha), float(error))
    for method, alpha, error in _lines(_DATA["localization"]["errors"])
}
GROUNDED_ON, GROUNDED_DATA = _GROUNDING["on"], _GROUNDING["format"]
MEASURES = ("R@1", "R@5", "R@10", "mAP group", "mAP phrase")
GROUNDING = tuple(
    PublishedRanks(method, proposals, _number(gamma), tuple(map(_pair, cells)))
    for method, proposals, gamma, *cells in _lines(_GROUNDING["ranks"])
)
GROUP_RECALLS = {  # recall at 5 of each group, and their mean, by method and proposals
    (method, proposals): tuple(map(float, values)) for method, proposals, *values in _lines(_GROUNDING["recalls"])
}


def pair_words(pair: Pair) -> str:
    """Both numbers with one decimal."""
    return " / ".join("-" if value is None else f"{value:.1f}" for value in pair)


def published_ranks() -> list[dict[str, str]]:
    """`GROUNDING` as text."""
    return [
        {
            "method": _named(line.method, line.proposals),
            "gamma": "-" if line.gamma is None else f"{line.gamma:g}",
            **dict(zip(MEASURES, map(pair_words, line.measures), strict=True)),
        }
        for line in GROUNDING
    ]


def published_groups() -> list[dict[str, str]]:
    """`GROUP_RECALLS` as text."""
    groups = (*_GROUNDING["groups"], "mean")
    return [
        {"method": _named(*names), **{group: f"{value:.1f}" for group, value in zip(groups, values, strict=True)}}
        for names, values in GROUP_RECALLS.items()
    ]


def _named(method: str, proposals: str) -> str:
    return f"{'own scores' if method == 'proposals' else WORDS.get(method, method)} ({proposals})"

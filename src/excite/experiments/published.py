"""Published results of the experiments, read from ``published.toml``; methods have the names of `excite.METHODS`."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Pair = tuple[float | None, float | None]
"""All and difficult, or all phrases and small instances, in percent; None where it is not published."""


class Published(NamedTuple):
    """A column of a published table of the Pointing Game; its scores are All and Difficult of each method."""

    source: str
    data: str
    network: str
    scores: Mapping[str, tuple[float, float]]


class PublishedBoxes(NamedTuple):
    """A column of the paper's table on localisation: the threshold in means of the map, and the error in percent."""

    alpha: float | None
    error: float


class PublishedRanks(NamedTuple):
    """A line of the paper's table on grounding; the method may be "proposals", for their own scores."""

    method: str
    proposals: str
    gamma: float | None
    r1: Pair
    r5: Pair
    r10: Pair
    map_group: Pair
    map_phrase: Pair


def _lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines()]


def _number(text: str) -> float | None:
    return None if text == "-" else float(text)


def _pair(text: str) -> Pair:
    first, second = text.split("/")
    return _number(first), _number(second)


def _pointing(table: Mapping[str, Any]) -> Iterator[Published]:
    """The columns of a table."""
    for k, (source, network) in enumerate(zip(table["sources"], table["networks"], strict=True)):
        cells = {method: line[k] for method, *line in _lines(table["scores"])}
        scores: Any = {method: _pair(cell) for method, cell in cells.items() if cell != "-"}
        yield Published(_DATA["sources"][source], table["data"], network, scores)


_DATA = tomllib.loads(files("excite.experiments").joinpath("published.toml").read_text("utf-8"))

WORDS: Mapping[str, str] = _DATA["methods"]
"""The names of the methods in publications."""

POINTING = {data: tuple(_pointing(table)) for data, table in _DATA["pointing"].items()}
"""The published columns of each format of data, the paper's first."""

CONTRAST: Mapping[str, str] = _DATA["contrast"]
"""The paper's table on contrastive attention."""

LOCALIZED_ON, LOCALIZED_DATA = _DATA["localization"]["on"], _DATA["localization"]["format"]
LOCALIZATION = {
    method: PublishedBoxes(_number(alpha), float(error))
    for method, alpha, error in _lines(_DATA["localization"]["errors"])
}
"""The paper's table on the localisation of dominant objects; its network and data, and their format."""

GROUNDED_ON, GROUNDED_DATA = _DATA["grounding"]["on"], _DATA["grounding"]["format"]
GROUNDING = tuple(
    PublishedRanks(method, proposals, _number(gamma), *map(_pair, cells))
    for method, proposals, gamma, *cells in _lines(_DATA["grounding"]["ranks"])
)
"""The paper's table on Flickr30k Entities; its network and data, and their format."""

GROUPS = tuple(_DATA["grounding"]["groups"])
GROUP_RECALLS = {
    (method, proposals): tuple(map(float, values))
    for method, proposals, *values in _lines(_DATA["grounding"]["recalls"])
}
"""The paper's recall at 5 of each of `GROUPS`, and their mean, by method and proposals."""


def published_ranks() -> list[dict[str, str]]:
    """`GROUNDING` as text."""
    names = ("R@1", "R@5", "R@10", "mAP group", "mAP phrase")
    return [
        {
            "method": _named(line.method, line.proposals),
            "gamma": "-" if line.gamma is None else f"{line.gamma:g}",
            **{name: _shown(pair) for name, pair in zip(names, line[3:], strict=True)},
        }
        for line in GROUNDING
    ]


def published_groups() -> list[dict[str, str]]:
    """`GROUP_RECALLS` as text."""
    return [
        {"method": _named(*names)}
        | {group: f"{value:.1f}" for group, value in zip((*GROUPS, "mean"), values, strict=True)}
        for names, values in GROUP_RECALLS.items()
    ]


def _named(method: str, proposals: str) -> str:
    return f"{'own scores' if method == 'proposals' else WORDS.get(method, method)} ({proposals})"


def _shown(pair: Pair) -> str:
    return " / ".join("-" if value is None else f"{value:.1f}" for value in pair)

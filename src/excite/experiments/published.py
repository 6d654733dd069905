"""Published results of the experiments, on other networks and partly other images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Published:
    """A column of a published table of the Pointing Game; its scores are All and Difficult of each method here."""

    source: str
    data: str
    network: str
    scores: Mapping[str, tuple[float, float]]


WORDS = {
    "center": "Center",
    "grad": "Grad",
    "guided": "Deconv (guided backprop)",
    "lrp": "LRP",
    "cam": "CAM",
    "grad-cam": "Grad-CAM",
    "mwp": "MWP",
    "c-mwp": "c-MWP",
}
"""The names of the methods in publications. The paper's Deconv is guided backprop."""

PAPER = "Excitation Backprop paper, Table 1"
TORCHRAY = "TorchRay"


def _columns(text: str, data: str, columns: tuple[tuple[str, str], ...]) -> tuple[Published, ...]:
    """The columns of a table in text; a score is written All/Difficult, a missing one as a dash."""
    scores: list[dict[str, tuple[float, float]]] = [{} for _ in columns]
    for line in text.strip().splitlines():
        method, *cells = line.split()
        for k, cell in enumerate(cells):
            if cell != "-":
                every, hard = cell.split("/")
                scores[k][method] = float(every), float(hard)
    return tuple(Published(source, data, network, scores[k]) for k, (source, network) in enumerate(columns))


POINTING: Mapping[str, tuple[Published, ...]] = {
    "voc": _columns(
        """
        center    69.5/42.6  69.5/42.6  69.5/42.6  69.6/42.4  69.6/42.4
        grad      78.6/59.8  76.0/56.8  79.3/61.4  76.3/56.9  72.3/56.8
        guided    73.1/45.9  75.5/52.8  74.3/49.4  75.9/53.0  77.2/59.4
        lrp       68.1/41.3  -          72.8/50.2  -          -
        cam       -          -          80.8/61.9  -          -
        grad-cam  -          -          -          86.6/74.0  90.4/82.3
        mwp       73.7/52.9  76.9/55.1  79.3/60.4  77.1/56.6  84.5/70.8
        c-mwp     78.7/61.7  80.0/66.8  85.1/72.3  79.9/66.5  90.7/82.1
        """,
        "VOC07 test",
        ((PAPER, "CNN-S"), (PAPER, "VGG16"), (PAPER, "GoogleNet"), (TORCHRAY, "VGG16"), (TORCHRAY, "ResNet-50")),
    ),
    "coco": _columns(
        """
        center    27.7/19.4  27.7/19.4  27.7/19.4  27.8/19.5
        grad      38.7/30.1  37.1/30.7  42.6/36.3  35.0/29.4
        guided    36.4/28.4  38.6/30.8  35.7/27.9  42.1/35.3
        lrp       32.5/24.0  -          40.2/32.7  -
        cam       -          -          41.6/35.0  -
        grad-cam  -          -          -          57.3/52.3
        mwp       35.0/27.7  39.5/32.5  43.6/37.1  49.6/43.9
        c-mwp     43.0/37.0  49.6/44.2  53.8/48.3  58.5/53.6
        """,
        "COCO val2014",
        ((PAPER, "CNN-S"), (PAPER, "VGG16"), (PAPER, "GoogleNet"), (TORCHRAY, "ResNet-50")),
    ),
}
"""The published columns of each format of data, the paper's first."""

CONTRAST = {
    "c-mwp": "70.6",
    "c-mwp-post-norm": "58.1",
    "c-mwp-no-norm": "41.6",
    "c-grad": "zero everywhere",
    "c-guided": "67.7 (49.4)",
    "c-cam": "61.9 (61.9)",
}
"""The paper's table on contrastive attention: GoogleNet on Difficult pairs of VOC07 test.

In brackets: the method without the contrast. The paper's Table 1 gives 72.3 for the first of them.
"""


class PublishedBoxes(NamedTuple):
    """A column of the paper's table on localisation: the threshold in means of the map, and the error in percent."""

    alpha: float | None
    error: float


LOCALIZED_ON, LOCALIZED_DATA = "GoogleNet, ImageNet val", "imagenet"
"""The network and data of the paper's localisation, and their format."""

LOCALIZATION: Mapping[str, PublishedBoxes] = {
    "grad": PublishedBoxes(5.0, 41.6),
    "guided": PublishedBoxes(4.5, 41.6),
    "lrp": PublishedBoxes(1.0, 57.8),
    "cam": PublishedBoxes(1.0, 48.1),
    "feedback": PublishedBoxes(None, 38.8),
    "c-mwp": PublishedBoxes(0.0, 57.0),
    "mwp": PublishedBoxes(1.5, 38.7),
}
"""The paper's table on the localisation of dominant objects, by the names of the methods here (see `WORDS`).

Feedback is no method here; the paper took its number from another publication.
"""

GROUNDED_ON, GROUNDED_DATA = "GoogleNet trained on Stock6M tags, Flickr30k Entities test", "flickr30k"
"""The network and data of the paper's tables on grounding, and their format."""

Pair = tuple[float | None, float | None]
"""All phrases and small instances, in percent; None where it is not published."""


class PublishedRanks(NamedTuple):
    """A line of the paper's table on grounding.

    The method has its name here, "proposals" for the proposals' own scores, or that of another system; proposals are
    MCG, or EB for EdgeBoxes.
    """

    method: str
    proposals: str
    gamma: float | None
    r1: Pair
    r5: Pair
    r10: Pair
    map_group: Pair
    map_phrase: Pair


def _line(text: str) -> PublishedRanks:
    method, proposals, gamma, *cells = text.split()
    pairs: list[Pair] = [(_number(every), _number(small)) for every, small in (cell.split("/") for cell in cells)]
    return PublishedRanks(method, proposals, _number(gamma), *pairs)


def _number(text: str) -> float | None:
    return None if text in {"", "-"} else float(text)


GROUNDING: tuple[PublishedRanks, ...] = tuple(
    map(
        _line,
        """
        proposals MCG  -     10.7/7.7   30.3/22.4  40.5/30.3  6.9/4.5    16.8/12.9
        grad      MCG  0.50  24.3/7.6   49.6/32.9  59.7/45.8  10.2/3.8   28.8/15.6
        guided    MCG  0.50  21.5/11.3  48.4/34.5  58.5/46.0  10.0/4.0   26.5/16.7
        lrp       MCG  0.50  24.3/11.8  51.6/36.8  61.3/48.5  10.3/4.3   28.9/18.1
        cam       MCG  0.75  21.7/6.5   47.1/27.9  56.1/39.1  7.5/2.0    26.0/11.9
        mwp       MCG  0.50  28.5/15.0  52.7/39.1  61.3/49.8  11.8/5.3   31.1/20.3
        c-mwp     MCG  0.50  26.2/21.2  54.3/43.4  62.2/51.7  15.2/10.8  30.8/24.0
        CCA*      EB   -     25.2/21.8  50.3/41.0  58.1/47.3  12.8/11.5  28.8/23.6
        CCA       EB   -     25.3/-     -/-        59.7/-     11.2/-     -/-
        c-mwp     EB   0.25  27.0/18.4  49.9/35.2  57.7/43.9  13.2/8.1   29.4/20.0
        """.strip().splitlines(),
    )
)
"""The paper's table on Flickr30k Entities: all phrases and small instances.

CCA is another, fully supervised system (Plummer et al., 2015): with a star its precomputed results, without those of
its own paper.
"""

GROUPS = ("people", "clothing", "bodypart", "animal", "vehicle", "instrument", "scene", "other")


GROUP_RECALLS: Mapping[tuple[str, str], tuple[float, ...]] = {
    (method, proposals): tuple(map(float, values))
    for method, proposals, *values in map(
        str.split,
        """
        proposals MCG  36.1  30.1   9.9  50.8  37.8  26.5  31.5  19.1  30.3
        grad      MCG  65.0  32.4  14.0  70.1  63.0  40.7  58.8  32.5  47.1
        guided    MCG  65.4  31.6  18.7  67.0  64.0  46.9  53.6  28.9  47.0
        lrp       MCG  64.6  37.7  16.4  62.9  63.5  45.7  59.4  37.9  48.5
        cam       MCG  60.5  28.4   9.6  57.0  57.5  37.0  64.4  32.7  43.4
        mwp       MCG  68.6  37.7  16.1  68.7  66.3  53.7  54.5  36.8  50.3
        c-mwp     MCG  63.5  47.6  24.5  69.9  72.0  54.3  61.0  40.2  54.1
        CCA*      EB   63.6  43.7  22.9  57.0  69.0  50.6  45.0  36.2  48.5
        c-mwp     EB   62.8  35.0  17.6  65.1  73.5  58.6  53.2  36.2  50.3
        """.strip().splitlines(),
    )
}
"""The paper's recall at 5 of each of `GROUPS`, and their mean, by method and proposals (it prints LRP as LRN)."""


def published_ranks() -> list[dict[str, str]]:
    """`GROUNDING` as text."""
    return [
        {
            "method": _named(line.method, line.proposals),
            "gamma": "-" if line.gamma is None else f"{line.gamma:g}",
            "R@1": _shown(line.r1),
            "R@5": _shown(line.r5),
            "R@10": _shown(line.r10),
            "mAP group": _shown(line.map_group),
            "mAP phrase": _shown(line.map_phrase),
        }
        for line in GROUNDING
    ]


def published_groups() -> list[dict[str, str]]:
    """`GROUP_RECALLS` as text."""
    return [
        {
            "method": _named(*names),
            **{group: f"{value:.1f}" for group, value in zip((*GROUPS, "mean"), values, strict=True)},
        }
        for names, values in GROUP_RECALLS.items()
    ]


def _named(method: str, proposals: str) -> str:
    return f"{'own scores' if method == 'proposals' else WORDS.get(method, method)} ({proposals})"


def _shown(pair: Pair) -> str:
    return " / ".join("-" if value is None else f"{value:.1f}" for value in pair)

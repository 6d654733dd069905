"""Numbers that others have published, to stand beside one's own: other networks, other pictures, the same game."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "CONTRAST",
    "LOCALIZATION",
    "LOCALIZED_DATA",
    "LOCALIZED_ON",
    "POINTING",
    "WORDS",
    "Published",
    "PublishedBoxes",
]


@dataclass(frozen=True)
class Published:
    """A column of a published table of the Pointing Game.

    Attributes:
        source: who published it.
        data: the pictures it was measured on.
        network: the classifier.
        scores: for each method, as it is called here, the mean accuracy in percent on all pairs and on Difficult ones.
    """

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
"""How the publications call the methods. What the paper calls Deconv is guided backprop."""

PAPER = "Excitation Backprop paper, Table 1"
TORCHRAY = "TorchRay"


def _columns(text: str, data: str, columns: tuple[tuple[str, str], ...]) -> tuple[Published, ...]:
    """The columns of a table in text; a score is written All/Difficult, a missing one as a dash."""
    lines = [line.split() for line in text.strip().splitlines()]
    return tuple(
        Published(source, data, network, {method: _pair(cells[k]) for method, *cells in lines if cells[k] != "-"})
        for k, (source, network) in enumerate(columns)
    )


def _pair(cell: str) -> tuple[float, float]:
    both, hard = map(float, cell.split("/"))
    return both, hard


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
"""For each format of data the published columns, the paper's first."""

CONTRAST = {
    "c-mwp": "70.6",
    "c-mwp-post-norm": "58.1",
    "c-mwp-no-norm": "41.6",
    "c-grad": "zero everywhere",
    "c-guided": "67.7 (49.4)",
    "c-cam": "61.9 (61.9)",
}
"""The paper's table on contrastive attention: GoogleNet on Difficult pairs of VOC07 test.

In brackets is what the method gets without the contrast. The paper's Table 1 gives 72.3 for the first of them.
"""


class PublishedBoxes(NamedTuple):
    """A column of the paper's table on localisation.

    Attributes:
        alpha: the threshold in means of the map that was chosen for the method; None where it is not told.
        error: how many boxes, in percent, overlap by less than a half with the object.
    """

    alpha: float | None
    error: float


LOCALIZED_ON, LOCALIZED_DATA = "GoogleNet, ImageNet val", "imagenet"
"""What the paper's localisation was measured on, for people to read, and the format of such data."""

LOCALIZATION: Mapping[str, PublishedBoxes] = {
    "grad": PublishedBoxes(5.0, 41.6),
    "guided": PublishedBoxes(4.5, 41.6),
    "lrp": PublishedBoxes(1.0, 57.8),
    "cam": PublishedBoxes(1.0, 48.1),
    "feedback": PublishedBoxes(None, 38.8),
    "c-mwp": PublishedBoxes(0.0, 57.0),
    "mwp": PublishedBoxes(1.5, 38.7),
}
"""The paper's table on the localisation of dominant objects, by the methods as they are called here (see `WORDS`).

Feedback is no method here; the paper took its number from those who made it.
"""

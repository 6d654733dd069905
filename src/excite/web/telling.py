"""What maps and phrases say, in pixels of the picture as it was sent: the same for the page and for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from excite.readouts.box import strong_box
from excite.readouts.point import peak

if TYPE_CHECKING:
    from torch import Tensor

    from excite.attention import AttentionMap
    from excite.grounding import Grounded
    from excite.web.uploads import Sheet

__all__ = ["Stretched", "map_told", "phrase_told", "rounded"]


@dataclass(frozen=True, eq=False)
class Stretched:
    """A map over its picture, with its point and its box: stretched once for all of them.

    Attributes:
        found: the map.
        plane: as large as the picture.
        point: as `AttentionMap.point` gives it.
        box: as `AttentionMap.box` gives it.
    """

    found: AttentionMap
    plane: Tensor
    point: tuple[int, int] | None
    box: tuple[int, int, int, int] | None

    @classmethod
    def of(cls, found: AttentionMap) -> Stretched:
        """Stretch a map."""
        plane = found.upsample()
        is_there = bool(found.values.max() > 0)
        return cls(found, plane, peak(plane) if is_there else None, strong_box(plane) if is_there else None)


def map_told(sheet: Sheet, one: Stretched) -> dict[str, Any]:
    """As `AttentionMap.to_dict`."""
    found = one.found
    return {
        "concept": found.concept,
        "probability": found.probability,
        "point": sheet.point(one.point),
        "box": sheet.box(one.box),
        "mass": found.mass,
        "layer": found.layer,
        "method": found.method,
    }


def phrase_told(sheet: Sheet, found: Grounded) -> dict[str, Any]:
    """As `Grounded.to_json`."""
    regions = [{"box": sheet.box(region.box), "score": region.score} for region in found.regions]
    return {**found.to_json(), "regions": regions, "point": sheet.point(found.map.point)}


def rounded(values: Tensor) -> list[list[float]]:
    """The numbers of a map with as many digits as say something.

    Example:
        >>> import torch
        >>> rounded(torch.tensor([[1 / 3, 0.0]]))
        [[0.333333, 0.0]]
    """
    return [[float(f"{value:.6g}") for value in row] for row in values.tolist()]

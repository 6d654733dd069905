"""The layers of the paper's speed figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.experiments.conservation.run import passes_everything
from excite.models.candidates import candidate_layers
from excite.models.layers import spatial_layers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from excite.experiments.speed.networks import Subject

__all__ = ["figure_layers", "spread"]

MOST = 12
ALL = 10_000


def figure_layers(subject: Subject, most: int = MOST) -> list[str]:
    """Ends of the network's blocks from top to bottom, spread over its depth, and the layer that is read unasked.

    What lies beside other branches is left out: there is no share of the forward pass above it.
    """
    module, picture = subject.module, subject.picture
    seen = [layer.name for layer in spatial_layers(module, picture)]
    blocks = {layer.name for layer in candidate_layers(module, picture, most=ALL)}
    trunk = {name for name in blocks if passes_everything(module, picture, name)} | {subject.layer}
    return spread(sorted(trunk, key=seen.index), most, subject.layer)[::-1]


def spread(names: Sequence[str], most: int, always: str) -> list[str]:
    """At most so many of the names, evenly over all, the first, the last and one more always among them.

    Example:
        >>> spread("abcdefg", 3, "f")
        ['a', 'f', 'g']
    """
    if len(names) <= most:
        return list(names)
    places = [round(k * (len(names) - 1) / (most - 1)) for k in range(most)]
    wanted = names.index(always)
    if wanted not in places:
        inner = places[1:-1] or places
        places[places.index(min(inner, key=lambda place: abs(place - wanted)))] = wanted
    return [names[place] for place in sorted(places)]

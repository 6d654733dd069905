"""Draws the figures of docs/theory.md: every number and every map in them is computed by the library.

python dev/theory_figures.py            (a minute; ten thousand walks take most of it)

Photographs are scikit-image's (free licences), the network is the embedded one. Colours are viridis: light is much.
"""

from __future__ import annotations

from copy import deepcopy
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image
from skimage import data
from torch import nn

import excite

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    Place = tuple[float, float]
    Places = Mapping[tuple[int, int], Place]

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
INK, FAINT = "#222222", "#888888"
COLOURS = mpl.colormaps["viridis"]
LIGHT = 0.6  # of viridis: dark letters are read better above it
LAYERS = ["blocks.14", "blocks.10", "blocks.4", "blocks.0"]
COUNTS = (10, 100, 1000, 10_000)


class Tiny(nn.Module):
    """Four inputs, three hidden units, two outputs: small enough to be drawn whole."""

    def __init__(self) -> None:
        super().__init__()
        self.input = nn.Identity()
        self.lower, self.upper = nn.Linear(4, 3, bias=False), nn.Linear(3, 2, bias=False)
        self.hidden = nn.ReLU()
        self.lower.weight.data = torch.tensor([[1.0, 0.5, 0, -0.5], [0, 1.0, 1.0, 0], [-0.5, 0, 0.5, 1.0]])
        self.upper.weight.data = torch.tensor([[1.0, 0.5, -1.0], [-0.5, 0.5, 1.0]])

    def forward(self, responses: Tensor) -> Tensor:
        """From inputs to outputs."""
        return self.upper(self.hidden(self.lower(self.input(responses))))


def chain() -> Figure:
    """The chain of a tiny network: its transition probabilities, and who wins when "cat" is cued."""
    network, picture = Tiny().double().eval(), torch.tensor([[2.0, 1.0, 0.5, 1.0]]).double()
    matrices = [excite.transition_matrix(network, picture, *pair) for pair in ((None, "hidden"), ("hidden", "input"))]
    whole = excite.absorbing_chain(network, picture, ["hidden", "input"])
    responses = [network(picture)[0], network.hidden(network.lower(picture))[0], picture[0]]
    won = [torch.tensor([1.0, 0.0]), *(whole.mwp(0, layer)[0] for layer in ("hidden", "input"))]
    places = {(row, k): ((k + 0.5) / n, 2.0 - row) for row, n in enumerate((2, 3, 4)) for k in range(n)}
    figure = Figure(figsize=(9.6, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw(left, places, matrices, [[f"{value:g}" for value in layer.tolist()] for layer in responses], None)
    _draw(right, places, matrices, [[f"{value:.2f}" for value in layer.tolist()] for layer in won], won)
    left.set_title("responses, and the probability of each step down", fontsize=11, color=INK)
    right.set_title('winning probabilities when "cat" is cued', fontsize=11, color=INK)
    return figure


def _draw(
    axes: Any, places: Places, matrices: Sequence[Tensor], texts: Sequence[Sequence[str]], won: Sequence[Tensor] | None
) -> None:
    """Units as circles with a text; steps as lines as wide as they are probable, or as they are taken."""
    for row, matrix in enumerate(matrices):
        for i, j in product(*map(range, matrix.shape)):
            probability = float(matrix[i, j])
            taken = probability if won is None else probability * float(won[row][i])
            _step(axes, places[row, i], places[row + 1, j], taken)
            if won is None and probability:
                _label(axes, places[row, i], places[row + 1, j], f"{probability:.2f}", 0.36 + 0.16 * ((i + j) % 2))
    for (row, k), (x, y) in places.items():
        share = None if won is None else float(won[row][k])
        axes.scatter([x], [y], s=760, color=["white" if share is None else COLOURS(share)], edgecolors=INK, zorder=2)
        ink = INK if share is None or share > LIGHT else "white"
        axes.text(x, y, texts[row][k], ha="center", va="center", size=10, color=ink)
    for k, name in enumerate(("cat", "dog")):
        axes.text(places[0, k][0], places[0, k][1] + 0.3, name, ha="center", size=11, color=INK)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.3, 2.5))
    axes.axis("off")


def _step(axes: Any, start: Place, end: Place, taken: float) -> None:
    look = {"lw": 0.6 + 6 * taken, "color": INK, "alpha": 0.75} if taken else {"lw": 0.8, "color": FAINT, "ls": ":"}
    axes.plot(*zip(start, end, strict=True), zorder=1, solid_capstyle="butt", **look)


def _label(axes: Any, start: Place, end: Place, text: str, at: float) -> None:
    """A text on the way from start to end."""
    x, y = (a + at * (b - a) for a, b in zip(start, end, strict=True))
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
    axes.text(x, y, text, size=8, ha="center", va="center", bbox=box)


def layers() -> Image.Image:
    """MWP of one concept from deep to shallow."""
    maps = excite.attend(excite.load("efficientnet-lite0"), data.chelsea(), "cat", layer=LAYERS, method="mwp")
    return excite.compare(maps, columns=2, cell_width=300)


def contrast() -> Image.Image:
    """MWP above, contrastive MWP below, for three concepts."""
    classifier, words = excite.load("everyday"), ["person", "flagpole", "space shuttle"]
    maps = [
        found
        for method in ("mwp", "c-mwp")
        for found in excite.attend(classifier, data.astronaut(), words, method=method)
    ]
    return excite.compare(maps, rows="method", cell_width=230)


def walks() -> Figure:
    """Where 10, 100, ... walks came through, the winning probabilities, and how far apart both are."""
    classifier, photo = excite.load("efficientnet-lite0"), Image.fromarray(data.coffee())
    picture, unit, layer = (
        classifier.prepared(photo, 1.0)[None],
        classifier.labels.find("espresso").units[0],
        "blocks.14",
    )
    exact = excite.mwp(classifier.module, picture, unit, layer=layer)[0].sum(dim=0)
    drawn = excite.sample_winners(classifier.module, picture, unit, layers=[layer], count=COUNTS[-1]).paths[layer]
    figure = Figure(figsize=(9.6, 3.7), layout="constrained")
    grid = figure.subplot_mosaic([["photo", *"abcd", "mwp"], ["curve"] * 6], height_ratios=[1, 1.9])
    grid["photo"].imshow(photo)
    grid["photo"].set_title("photograph", fontsize=9)
    for name, count in zip("abcd", COUNTS, strict=True):
        _map(grid[name], _share(drawn, count, exact), f"{count:,} walks")
    _map(grid["mwp"], exact, "winning probability")
    for axes in (panel for name, panel in grid.items() if name != "curve"):
        axes.set_xticks([])
        axes.set_yticks([])
    counts = np.unique(np.geomspace(10, COUNTS[-1], 40).astype(int))
    gaps = [float((_share(drawn, count, exact) - exact).abs().sum()) for count in counts]
    curve = grid["curve"]
    curve.loglog(counts, gaps, color=COLOURS(0.25), lw=2, marker="o", ms=3, label="sum of the differences")
    curve.loglog(
        counts, gaps[-1] * np.sqrt(counts[-1] / counts), color=INK, lw=1, ls="--", label="1 / square root of the count"
    )
    curve.set(xlabel="walks", ylabel="distance")
    curve.legend(frameon=False, fontsize=9)
    curve.spines[["top", "right"]].set_visible(False)
    return figure


def _share(paths: Sequence[tuple[int, ...] | None], count: int, like: Tensor) -> Tensor:
    """The share of the first so many walks that came through each place, whatever the channel."""
    visits = torch.zeros_like(like)
    for unit in paths[:count]:
        if unit is not None:
            visits[unit[-2:]] += 1
    return visits / count


def _map(axes: Any, values: Tensor, title: str) -> None:
    axes.imshow(values.numpy(), cmap=COLOURS, interpolation="nearest")
    axes.set_title(title, fontsize=9)


def mass() -> Figure:
    """How much of the signal is left at each layer, and how much would be if nothing had a bias."""
    classifier = excite.load("efficientnet-lite0")
    bare = deepcopy(classifier.module)
    for norm in (module for module in bare.modules() if isinstance(module, nn.BatchNorm2d)):
        norm.bias.data.zero_()
        norm.running_mean.zero_()
    names = ["head", *(f"blocks.{k}" for k in range(15, -1, -1)), "stem"]
    figure = Figure(figsize=(9.6, 3.4), layout="constrained")
    axes = figure.subplots()
    looks = zip((0.0, 0.35, 0.6), "os^", strict=True)
    questions = {"cat": data.chelsea(), "espresso": data.coffee(), "missile": data.rocket()}
    for (word, photo), (shade, marker) in zip(questions.items(), looks, strict=True):
        maps = excite.attend(classifier, photo, word, layer=names, method="mwp")
        axes.plot(names, [found.mass for found in maps], color=COLOURS(shade), marker=marker, lw=1.6, label=f'"{word}"')
    picture = classifier.prepared(Image.fromarray(data.chelsea()), 1.0)[None]
    arrived = excite.mwp(bare, picture, 285, layer=names)
    sums = [float(arrived[name].sum()) for name in names]
    axes.plot(names, sums, color=INK, ls="--", marker="x", label="the same network without shifts")
    axes.set(ylabel="mass that arrives", ylim=(0, 1.08))
    axes.tick_params(axis="x", rotation=45)
    axes.legend(frameon=False, fontsize=9, loc="center right")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def main() -> None:
    """Draw them."""
    for name, draw in (("chain", chain), ("walks", walks), ("mass", mass)):
        _saved(PICTURES / f"theory-{name}.png", draw())
    for name, paint in (("layers", layers), ("contrast", contrast)):
        _saved(PICTURES / f"theory-{name}.jpg", paint())


def _saved(target: Path, drawn: Figure | Image.Image) -> None:
    if isinstance(drawn, Figure):
        drawn.savefig(target, dpi=110, facecolor="white", metadata={"Software": None})
    else:
        drawn.save(target, quality=85, optimize=True)
    print(f"drew {target}, {target.stat().st_size // 1024} kB")


if __name__ == "__main__":
    main()

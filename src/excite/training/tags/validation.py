"""The images kept aside: what they cost now and then, and at the end what was learnt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from excite.io.files import save_csv

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from excite.tags.dictionary import Dictionary
    from excite.training.output_layer import Output
    from excite.training.tags.batches import Decoder
    from excite.training.tags.dataset import Lessons
    from excite.training.tags.model import Trainee


CHECKED = 5000  # images at most that a check looks at: enough to see a thousandth of the loss, and quick
BATCH = 64
FEW = 512  # images that are read before other processes would have begun


class Aside:
    """Pictures that nothing is learnt from.

    While only the output layer is trained, their features stay the same and are computed once.

    Args:
        lessons: these images.
        trainee: the network.
        decoder: reads them, all of each; this process reads its share.
        kept: features [images, ...] that are known, and their rows; the same in all processes.
    """

    def __init__(
        self, lessons: Lessons, trainee: Trainee, decoder: Decoder, kept: tuple[Tensor, NDArray[np.int64]] | None = None
    ) -> None:
        self.lessons, self._trainee, self._decoder = lessons, trainee, decoder
        self.failures: list[tuple[int, str]] = []
        every = np.arange(len(lessons))
        self._checked = np.sort(np.argsort(lessons.places, kind="stable")[:CHECKED])
        self._kept: tuple[Tensor, NDArray[np.int64]] | None = None
        if kept is not None:
            mine = np.flatnonzero(kept[1] % trainee.processes.size == trainee.processes.rank)
            self._kept = kept[0][torch.from_numpy(mine)], kept[1][mine]
        elif not trainee.everything and len(every):
            self._kept = self._read(every)

    def loss(self) -> float | None:
        """The mean over the images that are checked, of all processes; None where there are none."""
        if not len(self.lessons):
            return None
        features, rows = self._of(self._checked)
        units = torch.from_numpy(self.lessons.units[rows])
        total = torch.zeros(2, dtype=torch.float64, device=self._trainee.processes.device)
        with torch.no_grad():
            for start in range(0, len(rows), BATCH):
                part = features[start : start + BATCH].float()
                total[0] += self._trainee.loss(part, units[start : start + BATCH]).double()
                total[1] += len(part)
        self._trainee.processes.add_up([total])
        return float(total[0] / total[1]) if total[1] else None

    def everything(self) -> tuple[Tensor, NDArray[np.int64]]:
        """The features and rows of all images that can be read, of all processes."""
        parts = self._trainee.processes.gathered(self._of(np.arange(len(self.lessons))))
        return torch.cat([features for features, _ in parts if len(features)] or [torch.zeros(0)]), np.concatenate(
            [rows for _, rows in parts]
        )

    def _of(self, rows: NDArray[np.int64]) -> tuple[Tensor, NDArray[np.int64]]:
        if self._kept is None:
            return self._read(rows)
        features, known = self._kept
        wanted = np.flatnonzero(np.isin(known, rows))
        return features[torch.from_numpy(wanted)], known[wanted]

    def _read(self, rows: NDArray[np.int64]) -> tuple[Tensor, NDArray[np.int64]]:
        """The features of this process's share of the rows, on the CPU in half precision."""
        processes = self._trainee.processes
        mine = rows[rows % processes.size == processes.rank]
        decoder = replace(self._decoder, workers=1) if len(mine) < FEW else self._decoder
        requests = (
            [(int(row), self.lessons.name(row), 0) for row in part]
            for part in np.array_split(mine, -(-len(mine) // BATCH) or 1)
        )
        features, read = [], []
        with torch.no_grad():
            for batch in decoder(requests):
                self.failures.extend((~row, reason) for row, reason in batch.failures)
                if batch.pictures is not None:
                    features.append(self._trainee.features(batch.pictures).half().cpu())
                    read.append(batch.rows)
        return (torch.cat(features) if features else torch.zeros(0)), np.concatenate([np.zeros(0, np.int64), *read])


# How well tags are predicted for images kept aside, against predicting them by their frequency alone.

SCORES = 1 << 26  # at a time: 256 MB
LOGITS_BATCH = 256  # images
SHOWN = 20  # of the best and of the worst tags


@dataclass(frozen=True)
class Precisions:
    """How well each tag is found.

    Attributes:
        counts: in how many of the images each is.
        precision: its average precision; NaN where it is in none.
        share: the average precision of any constant score, which is the share of the images that have the tag.
    """

    counts: NDArray[np.int64]
    precision: NDArray[np.float64]
    share: NDArray[np.float64]

    def means(self) -> dict[str, float | None]:
        """Over the tags that are in some image, with what predicting by frequency gives."""
        seen = self.counts > 0
        if not seen.any():
            return {"map": None, "map_by_frequency": None, "ratio": None}
        found, constant = float(self.precision[seen].mean()), float(self.share[seen].mean())
        return {"map": found, "map_by_frequency": constant, "ratio": found / constant}


def measure(aside: Aside, trainee: Trainee, dictionary: Dictionary, path: Path | None) -> dict[str, Any]:
    """The facts about how well the tags of images kept aside are predicted; nothing where there are no such images.

    Args:
        aside: the images.
        trainee: the network.
        dictionary: the tags.
        path: for a table of all tags; the process without one only gives its share of the features away.
    """
    features, rows = aside.everything()
    if path is None or not len(rows):
        return {}
    number = np.full(len(aside.lessons), -1, np.int64)
    number[rows] = np.arange(len(rows))
    pictures, places = np.nonzero(aside.lessons.units >= 0)
    listed = np.stack([pictures, aside.lessons.units[pictures, places].astype(np.int64)], axis=1)
    truths = [np.stack([number[pairs[:, 0]], pairs[:, 1]], axis=1) for pairs in (aside.lessons.pairs, listed)]
    truths = [pairs[pairs[:, 0] >= 0] for pairs in truths]
    every, first = measured(scores_by_tag(trainee.output, features), truths, len(rows), len(dictionary))
    save_measures(dictionary.tags, every, first, path)
    return {
        "measured": len(rows),
        "tags_measured": int((every.counts > 0).sum()),
        **every.means(),
        **{f"{name}_first": value for name, value in first.means().items()},
        **extremes(dictionary.tags, every),
    }


def precisions(columns: Sequence[NDArray[Any]], positives: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    """The average precision of tags, as in `excite.metrics.ranking`; equal scores count as seen together.

    One sort of a tag's scores tells how many are at least as high as that of each positive, which is all one needs.

    Args:
        columns: for each tag the scores of all images.
        positives: for each tag the images that have it.

    Example:
        >>> precisions([np.array([0.9, 0.8, 0.7, 0.1])], [np.array([0, 2])])
        array([0.83333333])
    """
    found = np.full(len(columns), np.nan)
    for place, (scores, there) in enumerate(zip(columns, positives, strict=True)):
        if len(there):
            own = np.sort(scores[there])
            hits = len(own) - np.searchsorted(own, own, "left")
            seen = len(scores) - np.searchsorted(np.sort(scores), own, "left")
            found[place] = (hits / seen).mean()
    return found


def measured(
    columns: Callable[[int, int], NDArray[Any]], truths: Sequence[NDArray[np.int64]], pictures: int, tags: int
) -> list[Precisions]:
    """The average precision of every tag, for several truths; a piece of the tags at a time.

    Args:
        columns: the scores [tags, images] of the tags from one place to another.
        truths: each [n, 2], the pairs of images and their tags, each once.
        pictures: how many there are.
        tags: how many there are.
    """
    ordered = [_by_tag(truth, tags) for truth in truths]
    found = [np.full(tags, np.nan) for _ in truths]
    size = max(1, SCORES // max(1, pictures))
    for start in range(0, tags if pictures else 0, size):
        end = min(start + size, tags)
        scores = list(columns(start, end))
        for (rows, starts), each in zip(ordered, found, strict=True):
            there = [rows[starts[tag] : starts[tag + 1]] for tag in range(start, end)]
            each[start:end] = precisions(scores, there)
    counts = [np.diff(starts) for _, starts in ordered]
    return [Precisions(count, each, count / max(1, pictures)) for count, each in zip(counts, found, strict=True)]


def _by_tag(pairs: NDArray[np.int64], tags: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The images in the order of their tags, and where those of each tag begin."""
    order = np.argsort(pairs[:, 1], kind="stable")
    starts = np.searchsorted(pairs[order, 1], np.arange(tags + 1))
    return pairs[order, 0], starts


def scores_by_tag(output: Output, features: Tensor) -> Callable[[int, int], NDArray[Any]]:
    """The logits of images as `measured` takes them; logits rank as probabilities do.

    Args:
        output: the output layer, with what comes behind it.
        features: of all images.
    """
    device = next(output.layer.parameters()).device
    layer = output.layer

    def columns(start: int, end: int) -> NDArray[Any]:
        answer = np.empty((end - start, len(features)), np.float32)
        with torch.no_grad():
            for first in range(0, len(features), LOGITS_BATCH):
                part = features[first : first + LOGITS_BATCH].to(device).float()
                if isinstance(layer, nn.Linear) and not output.tail and part.dim() == 2:
                    logits = nn.functional.linear(part, layer.weight[start:end], layer.bias[start:end])
                else:
                    logits = output(part)[:, start:end]
                answer[:, first : first + LOGITS_BATCH] = logits.T.cpu().numpy()
        return answer

    return columns


def save_measures(tags: Sequence[str], every: Precisions, first: Precisions, path: Path) -> Path:
    """Write a line for each tag as CSV; the columns that begin with ``first`` are those of the first tags only."""
    rows: list[list[Any]] = [["tag", "count", "precision", "share", "first_count", "first_precision", "first_share"]]
    for place, tag in enumerate(tags):
        numbers: list[Any] = []
        for truth in (every, first):
            precision = "" if not truth.counts[place] else f"{truth.precision[place]:.6f}"
            numbers += [int(truth.counts[place]), precision, f"{truth.share[place]:.6f}"]
        rows.append([tag, *numbers])
    return save_csv(rows, path)


def extremes(tags: Sequence[str], found: Precisions) -> dict[str, dict[str, float]]:
    """The tags that are found best and worst, of those that are in some image.

    Example:
        >>> found = Precisions(np.array([3, 0, 1]), np.array([0.5, np.nan, 0.25]), np.array([0.3, 0, 0.1]))
        >>> extremes(["cat", "dog", "emu"], found)["best"]
        {'cat': 0.5, 'emu': 0.25}
    """
    seen = np.flatnonzero(found.counts > 0)
    order = seen[np.argsort(-found.precision[seen], kind="stable")]
    best, worst = order[:SHOWN], order[::-1][:SHOWN]
    return {
        name: {tags[tag]: round(float(found.precision[tag]), 4) for tag in some}
        for name, some in (("best", best), ("worst", worst))
    }

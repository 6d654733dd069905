"""Validation on held-out images: the loss during a training, and at its end the average precision of each tag."""

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
    from excite.training.tags.batches import ImageLoader
    from excite.training.tags.dataset import TagDataset
    from excite.training.tags.model import Model

CHECKED = 5000  # images for the loss: enough to resolve a thousandth of it
BATCH = 64
FEW = 512  # images that this process reads before workers would have started
SCORES = 1 << 26  # at a time: 256 MB
LOGITS_BATCH = 256  # images
SHOWN = 20  # of the best and of the worst tags


class Validation:
    """Held-out images; while only the output layer is trained, their features are computed once.

    Args:
        dataset: the images.
        model: the network in training.
        loader: reads them whole; each process reads its share.
        stored: features [images, ...] and their rows, if known; the same in all processes.
    """

    def __init__(
        self,
        dataset: TagDataset,
        model: Model,
        loader: ImageLoader,
        stored: tuple[Tensor, NDArray[np.int64]] | None = None,
    ) -> None:
        self.dataset, self._model, self._loader = dataset, model, loader
        self.failures: list[tuple[int, str]] = []
        self._checked = np.sort(np.argsort(dataset.fractions, kind="stable")[:CHECKED])
        self._stored: tuple[Tensor, NDArray[np.int64]] | None = None
        if stored is not None:
            mine = np.flatnonzero(stored[1] % model.processes.size == model.processes.rank)
            self._stored = stored[0][torch.from_numpy(mine)], stored[1][mine]
        elif not model.everything and len(dataset):
            self._stored = self._read(np.arange(len(dataset)))

    def loss(self) -> float | None:
        """The mean over (at most `CHECKED`) images of all processes; None without images."""
        if not len(self.dataset):
            return None
        features, rows = self._features(self._checked)
        units = torch.from_numpy(self.dataset.units[rows])
        total = torch.zeros(2, dtype=torch.float64, device=self._model.processes.device)
        with torch.no_grad():
            for start in range(0, len(rows), BATCH):
                part = features[start : start + BATCH].float()
                total[0] += self._model.loss(part, units[start : start + BATCH]).double()
                total[1] += len(part)
        self._model.processes.all_reduce([total])
        return float(total[0] / total[1]) if total[1] else None

    def gather(self) -> tuple[Tensor, NDArray[np.int64]]:
        """The features and rows of all readable images of all processes."""
        parts = self._model.processes.all_gather(self._features(np.arange(len(self.dataset))))
        features = torch.cat([features for features, _ in parts if len(features)] or [torch.zeros(0)])
        return features, np.concatenate([rows for _, rows in parts])

    def _features(self, rows: NDArray[np.int64]) -> tuple[Tensor, NDArray[np.int64]]:
        if self._stored is None:
            return self._read(rows)
        features, known = self._stored
        wanted = np.flatnonzero(np.isin(known, rows))
        return features[torch.from_numpy(wanted)], known[wanted]

    def _read(self, rows: NDArray[np.int64]) -> tuple[Tensor, NDArray[np.int64]]:
        """The features of this process's share of the rows, on the CPU in half precision."""
        processes = self._model.processes
        mine = rows[rows % processes.size == processes.rank]
        loader = replace(self._loader, workers=1) if len(mine) < FEW else self._loader
        requests = (
            [(int(row), self.dataset.name(row), 0) for row in part]
            for part in np.array_split(mine, -(-len(mine) // BATCH) or 1)
        )
        features, read = [], []
        with torch.no_grad():
            for batch in loader(requests):
                self.failures.extend((~row, reason) for row, reason in batch.failures)
                if batch.values is not None:
                    features.append(self._model.features(batch.values).half().cpu())
                    read.append(batch.rows)
        return (torch.cat(features) if features else torch.zeros(0)), np.concatenate([np.zeros(0, np.int64), *read])


@dataclass(frozen=True)
class Precisions:
    """The average precision of each tag.

    Attributes:
        counts: the number of images with the tag.
        precision: the average precision; NaN for a tag of no image.
        share: the average precision of a constant score, which is the share of images with the tag.
    """

    counts: NDArray[np.int64]
    precision: NDArray[np.float64]
    share: NDArray[np.float64]

    def means(self) -> dict[str, float | None]:
        """Mean average precision over the tags of at least one image, and that of predicting by frequency."""
        seen = self.counts > 0
        if not seen.any():
            return {"map": None, "map_by_frequency": None, "ratio": None}
        found, constant = float(self.precision[seen].mean()), float(self.share[seen].mean())
        return {"map": found, "map_by_frequency": constant, "ratio": found / constant}


def measure(validation: Validation, model: Model, dictionary: Dictionary, path: Path | None) -> dict[str, Any]:
    """Average precisions on the held-out images, and a table of all tags; without a path, only share the features."""
    features, rows = validation.gather()
    if path is None or not len(rows):
        return {}
    dataset = validation.dataset
    number = np.full(len(dataset), -1, np.int64)
    number[rows] = np.arange(len(rows))
    pictures, positions = np.nonzero(dataset.units >= 0)
    listed = np.stack([pictures, dataset.units[pictures, positions].astype(np.int64)], axis=1)
    truths = [np.stack([number[pairs[:, 0]], pairs[:, 1]], axis=1) for pairs in (dataset.pairs, listed)]
    truths = [pairs[pairs[:, 0] >= 0] for pairs in truths]
    every, first = precisions_of(scores_by_tag(model.output, features), truths, len(rows), len(dictionary))
    save_measures(dictionary.tags, every, first, path)
    return {
        "measured": len(rows),
        "tags_measured": int((every.counts > 0).sum()),
        **every.means(),
        **{f"{name}_first": value for name, value in first.means().items()},
        **extremes(dictionary.tags, every),
    }


def average_precisions(columns: Sequence[NDArray[Any]], positives: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
    """The average precision of each tag from the scores of all images and its positive images.

    As in `excite.metrics.ranking`; one sort of a tag's scores gives the rank of each positive.
    """
    found = np.full(len(columns), np.nan)
    for tag, (scores, there) in enumerate(zip(columns, positives, strict=True)):
        if len(there):
            own = np.sort(scores[there])
            hits = len(own) - np.searchsorted(own, own, "left")
            seen = len(scores) - np.searchsorted(np.sort(scores), own, "left")
            found[tag] = (hits / seen).mean()
    return found


def precisions_of(
    columns: Callable[[int, int], NDArray[Any]], truths: Sequence[NDArray[np.int64]], pictures: int, tags: int
) -> list[Precisions]:
    """The average precision of every tag for several truths, some tags at a time.

    ``columns`` gives the scores [tags, images] of a range of tags; each truth [n, 2] holds the distinct pairs of images
    and their tags.
    """
    ordered = [_by_tag(truth, tags) for truth in truths]
    found = [np.full(tags, np.nan) for _ in truths]
    size = max(1, SCORES // max(1, pictures))
    for start in range(0, tags if pictures else 0, size):
        end = min(start + size, tags)
        scores = list(columns(start, end))
        for (rows, starts), each in zip(ordered, found, strict=True):
            there = [rows[starts[tag] : starts[tag + 1]] for tag in range(start, end)]
            each[start:end] = average_precisions(scores, there)
    counts = [np.diff(starts) for _, starts in ordered]
    return [Precisions(count, each, count / max(1, pictures)) for count, each in zip(counts, found, strict=True)]


def _by_tag(pairs: NDArray[np.int64], tags: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The images ordered by tag, and the start of each tag's."""
    order = np.argsort(pairs[:, 1], kind="stable")
    return pairs[order, 0], np.searchsorted(pairs[order, 1], np.arange(tags + 1))


def scores_by_tag(output: Output, features: Tensor) -> Callable[[int, int], NDArray[Any]]:
    """The logits of all images for a range of tags, as `precisions_of` takes them; they rank as probabilities do."""
    layer = output.layer
    device = next(layer.parameters()).device

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
    for unit, tag in enumerate(tags):
        numbers: list[Any] = []
        for truth in (every, first):
            precision = "" if not truth.counts[unit] else f"{truth.precision[unit]:.6f}"
            numbers += [int(truth.counts[unit]), precision, f"{truth.share[unit]:.6f}"]
        rows.append([tag, *numbers])
    return save_csv(rows, path)


def extremes(tags: Sequence[str], found: Precisions) -> dict[str, dict[str, float]]:
    """The tags with the highest and the lowest average precision."""
    seen = np.flatnonzero(found.counts > 0)
    order = seen[np.argsort(-found.precision[seen], kind="stable")]
    return {
        name: {tags[tag]: round(float(found.precision[tag]), 4) for tag in some[:SHOWN]}
        for name, some in (("best", order), ("worst", order[::-1]))
    }

"""Validation on held-out images: the loss during a training, and at its end the average precision of each tag."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csc_array
from torch import Tensor, nn

from excite.io.files import save_csv
from excite.tags.dictionary import Dictionary
from excite.training.output_layer import Output
from excite.training.tags.dataset import ImageLoader, TagDataset
from excite.training.tags.model import Model

CHECKED = 5000  # images for the loss: enough to resolve a thousandth of it
BATCH = 64
FEW = 512  # images that this process reads before workers would have started
SCORES = 1 << 26  # at a time: 256 MB
LOGITS_BATCH = 256  # images
SHOWN = 20  # of the best and of the worst tags

Known = tuple["Tensor", "NDArray[np.int64]"]
"""Features [images, ...] in half precision, and the rows of their images."""


class Validation:
    """Held-out images, of which each process reads its share, unless their features are stored."""

    def __init__(self, dataset: TagDataset, model: Model, loader: ImageLoader, stored: Known | None = None) -> None:
        self.dataset, self._model, self._loader = dataset, model, loader
        self.failures: list[tuple[int, str]] = []
        self._checked = np.sort(np.argsort(dataset.fractions, kind="stable")[:CHECKED])
        self._stored: Known | None = None
        if stored is not None:
            self._stored = _chosen(stored, self._is_own(stored[1]))
        elif not model.everything and len(dataset):
            self._stored = self._read(np.arange(len(dataset)))

    def loss(self) -> float | None:
        """The mean over (at most `CHECKED`) images of all processes; None without images."""
        features, rows = self._features(self._checked)
        units = torch.from_numpy(self.dataset.units[rows])
        total = 0.0
        with torch.no_grad():
            for start in range(0, len(rows), BATCH):
                part = slice(start, start + BATCH)
                total += float(self._model.loss(features[part].float(), units[part]))
        total, pictures = self._model.processes.sum(total, len(rows))
        return total / pictures if pictures else None

    def gather(self) -> Known:
        """The features and rows of all readable images of all processes."""
        parts = self._model.processes.all_gather(self._features(np.arange(len(self.dataset))))
        features = torch.cat([features for features, _ in parts if len(features)] or [torch.zeros(0)])
        return features, np.concatenate([rows for _, rows in parts])

    def _is_own(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.equal(rows % self._model.processes.size, self._model.processes.rank)

    def _features(self, rows: NDArray[np.int64]) -> Known:
        if self._stored is None:
            return self._read(rows)
        return _chosen(self._stored, np.isin(self._stored[1], rows))

    def _read(self, rows: NDArray[np.int64]) -> Known:
        """The features of this process's share of the rows, on the CPU."""
        own = rows[self._is_own(rows)]
        loader = replace(self._loader, workers=1) if len(own) < FEW else self._loader
        parts = np.array_split(own, -(-len(own) // BATCH) or 1)
        features, read = [], [np.zeros(0, np.int64)]
        with torch.no_grad():
            for batch in loader(self.dataset.requests(part, 0) for part in parts):
                self.failures.extend((~row, reason) for row, reason in batch.failures)
                if batch.values is not None:
                    features.append(self._model.features(batch.values).half().cpu())
                    read.append(batch.rows)
        return (torch.cat(features) if features else torch.zeros(0)), np.concatenate(read)


def _chosen(known: Known, chosen: NDArray[np.bool_]) -> Known:
    return known[0][torch.from_numpy(chosen)], known[1][chosen]


@dataclass(frozen=True)
class Precisions:
    """Of each tag."""

    counts: NDArray[np.int64]  # the number of images with the tag
    precision: NDArray[np.float64]  # the average precision; NaN for a tag of no image
    share: NDArray[np.float64]  # of images with the tag: the average precision of a constant score

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
    dataset, tags = validation.dataset, len(dictionary)
    pictures, positions = np.nonzero(dataset.units >= 0)
    listed = np.stack([pictures, dataset.units[pictures, positions]], axis=1)
    shape = len(dataset), tags
    truths = [
        csc_array((np.ones(len(pairs), bool), pairs.T), shape=shape).tocsr()[rows].tocsc()
        for pairs in (dataset.pairs, listed)
    ]
    every, first = precisions_of(model.output, features, truths)
    save_measures(dictionary.tags, every, first, path)
    return {
        "measured": len(rows),
        "tags_measured": int((every.counts > 0).sum()),
        **every.means(),
        **{f"{name}_first": value for name, value in first.means().items()},
        **extremes(dictionary.tags, every),
    }


def precisions_of(output: Output, features: Tensor, truths: Sequence[csc_array]) -> list[Precisions]:
    """The average precision of every tag for several truths [images, tags], as in `excite.metrics.ranking`."""
    pictures, tags = truths[0].shape
    found = [np.full(tags, np.nan) for _ in truths]
    size = max(1, SCORES // max(1, pictures))
    for start in range(0, tags, size):
        for tag, scores in enumerate(logits_of(output, features, start, min(start + size, tags)), start):
            ranked = np.sort(scores)  # gives the rank of each image that has the tag
            for truth, each in zip(truths, found, strict=True):
                own = np.sort(scores[truth.indices[truth.indptr[tag] : truth.indptr[tag + 1]]])
                if len(own):
                    hits = len(own) - np.searchsorted(own, own, "left")
                    each[tag] = (hits / (pictures - np.searchsorted(ranked, own, "left"))).mean()
    counts = [np.diff(truth.indptr).astype(np.int64) for truth in truths]
    return [Precisions(count, each, count / max(1, pictures)) for count, each in zip(counts, found, strict=True)]


def logits_of(output: Output, features: Tensor, start: int, end: int) -> NDArray[Any]:
    """The logits [tags, images] of a range of tags; they rank as probabilities do."""
    layer = output.layer
    device = next(layer.parameters()).device
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


def save_measures(tags: Sequence[str], every: Precisions, first: Precisions, path: Path) -> Path:
    """Write a line for each tag as CSV; the columns that begin with ``first`` are those of the first tags only."""
    rows: list[list[Any]] = [["tag", "count", "precision", "share", "first_count", "first_precision", "first_share"]]
    for unit, tag in enumerate(tags):
        rows.append([tag])
        for truth in (every, first):
            precision = f"{truth.precision[unit]:.6f}" if truth.counts[unit] else ""
            rows[-1] += [int(truth.counts[unit]), precision, f"{truth.share[unit]:.6f}"]
    return save_csv(rows, path)


def extremes(tags: Sequence[str], found: Precisions) -> dict[str, dict[str, float]]:
    """The tags with the highest and the lowest average precision."""
    seen = np.flatnonzero(found.counts > 0)
    order = seen[np.argsort(-found.precision[seen], kind="stable")]
    return {
        name: {tags[tag]: round(float(found.precision[tag]), 4) for tag in some[:SHOWN]}
        for name, some in (("best", order), ("worst", order[::-1]))
    }

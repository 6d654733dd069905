"""The pictures kept aside: what they cost now and then, and at the end what was learnt."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from excite.training.tags.batches import Decoder
    from excite.training.tags.dataset import Lessons
    from excite.training.tags.model import Trainee

__all__ = ["CHECKED", "Aside"]

CHECKED = 5000  # pictures at most that a check looks at: enough to see a thousandth of the loss, and quick
BATCH = 64
FEW = 512  # pictures that are read before other processes would have begun


class Aside:
    """Pictures that nothing is learnt from.

    While only the output layer is trained, their features stay the same and are computed once.

    Args:
        lessons: these pictures.
        trainee: the network.
        decoder: reads them, all of each; this process reads its share.
        kept: features [pictures, ...] that are known, and their rows; the same in all processes.
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
        """The mean over the pictures that are checked, of all processes; None where there are none."""
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
        """The features and rows of all pictures that can be read, of all processes."""
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

"""What one network did in grounding, with all that its tables and figures need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from excite.datasets.phrases import Phrase
    from excite.experiments.grounding.grounding_rows import Lead, Row
    from excite.grounding import Grounded
    from excite.jobs.ledger_init import Entry

__all__ = ["Run"]


@dataclass(frozen=True)
class Run:
    """One network's grounding.

    Attributes:
        classifier_name: for people to read.
        rows: of its methods.
        shared: rows that need no network: the proposals' own scores, and other systems.
        leads: how much better its main method is than everything else.
        records: a record for each picture that is reported on.
        dataset_name: the format of the data,
        split: and which part of it.
        groups: the kinds of things that the data know.
        about: what was measured and what was left out, as plain values for JSON.
        show: grounds a phrase again, for drawing; see `excite.experiments.grounding.run.Grounding.show`.
    """

    classifier_name: str
    rows: Sequence[Row]
    shared: Sequence[Row]
    leads: Sequence[Lead]
    records: Sequence[Entry]
    dataset_name: str
    split: str
    groups: Sequence[str]
    about: Mapping[str, Any]
    show: Callable[[str, int, str, float, int], tuple[Grounded, Phrase]]

"""The folder of a tag classifier: what a training leaves behind, and how one sees that it was finished."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from excite.io.files import save_text
from excite.models.folder import FACTS, WEIGHTS, Saved, read_saved, save_classifier
from excite.training.tags.card import card as card_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from excite.training.tags.setup import Subject

__all__ = ["BOARD", "CHECKPOINT", "CURVES", "MEASURES", "files_in", "finished", "save_result"]

CHECKPOINT, CURVES, BOARD = "training.safetensors", "curves.csv", "tensorboard"
DICTIONARY, MEASURES, README = "dictionary.csv", "measures.csv", "README.md"


def save_result(folder: Path, subject: Subject, facts: Mapping[str, Any], command: str) -> None:
    """Write the classifier, its dictionary and its card; what says that the training is finished comes last."""
    saved = Saved(
        base=subject.base,
        labels=tuple((tag,) for tag in subject.choice.dictionary.tags),
        multilabel=True,
        layers=subject.card.layers,
        size=subject.preprocess.shorter_side,
        fully_convolutional=subject.card.fully_convolutional,
        training=facts,
    )
    subject.choice.dictionary.save(folder / DICTIONARY)
    save_text(card_text(saved.base, len(saved.labels), facts, command), folder / README)
    save_classifier(folder, subject.network.cpu(), saved)
    (folder / CHECKPOINT).unlink(missing_ok=True)


def finished(folder: Path, key: str) -> dict[str, Any] | None:
    """The facts of this same training, if it was finished before."""
    if not (folder / FACTS).is_file():
        return None
    facts = dict(read_saved(folder).training)
    return facts if facts.get("key") == key else None


def files_in(folder: Path) -> list[str]:
    """What a user may want to look at."""
    names = (README, DICTIONARY, CURVES, MEASURES, WEIGHTS, FACTS)
    return [str(folder / name) for name in names if (folder / name).is_file()]

"""What is asked of the pictures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from excite.autolabel.concepts import category, check_labels, folders_of, understood
from excite.autolabel.work import Task
from excite.errors import ConceptError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from excite.autolabel.concepts import Wanted
    from excite.autolabel.inputs import Picture
    from excite.vocabulary import Labels

__all__ = ["Question"]

PROBABLE = 0.5


@dataclass(frozen=True)
class Question:
    """What to look for, and how sure the classifier has to be.

    Attributes:
        concepts: look for these in every picture; none for the classifier's own best finding.
        from_folders: look for what the folder of a picture is called.
        at_least: a concept that is less probable gets no box; None for 0.5, or for 0 where folders tell what is there.
        how: arguments of `excite.locating.locate` that are not as usual.

    Example:
        >>> Question(("dog", "cat")).threshold, Question(from_folders=True).threshold
        (0.5, 0)
    """

    concepts: tuple[str, ...] = ()
    from_folders: bool = False
    at_least: float | None = None
    how: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.concepts and self.from_folders:
            raise ConceptError("the folders already say what to look for: name no concepts beside them")
        if self.at_least is not None and not 0 <= self.at_least <= 1:
            raise ConceptError(f"at least {self.at_least} is no probability: give a number from 0 to 1")

    @property
    def threshold(self) -> float:
        """How probable a concept has to be; what a folder is called is known to be there."""
        if self.at_least is not None:
            return self.at_least
        return 0 if self.from_folders else PROBABLE

    def wanted(self, pictures: Sequence[Picture], labels: Labels | None) -> tuple[Wanted, ...]:
        """All that is looked for, in the order of the files; nothing where the classifier tells what it finds."""
        if not self.concepts and not self.from_folders:
            check_labels(labels)
        return understood(folders_of(pictures) if self.from_folders else self.concepts, labels)

    def tasks(self, pictures: Sequence[Picture], wanted: Sequence[Wanted]) -> list[Task]:
        """What of that is looked for in which picture."""
        if not self.from_folders:
            return [Task(picture, tuple(wanted)) for picture in pictures]
        called = {one.category: one for one in wanted}
        return [Task(picture, (called[category(picture.folder)],)) for picture in pictures]

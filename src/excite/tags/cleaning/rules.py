"""Which pictures of a corpus are worth learning from: the rules of the paper's appendix."""

from __future__ import annotations

from dataclasses import dataclass

from excite.errors import DataError

__all__ = ["AGAINST", "RULES", "Rules"]

RULES = ("no_image", "repeated_image", "few_tags", "alphabetical", "similar", "unreadable", "near_duplicate")
"""Why a picture is dropped, in the order in which the rules are asked; the first that holds is the reason."""

AGAINST = ("seen", "kept")


@dataclass(frozen=True)
class Rules:
    """The thresholds, by default the paper's.

    Attributes:
        least_count: a tag seen at least so often in the corpus as read is in the dictionary.
        most_tags: the dictionary has at most so many, the most frequent; None for no bound.
        least_tags: a picture with fewer is dropped.
        alphabetical: whether one whose tags stand in alphabetical order is dropped.
        similar: whether one is dropped that begins like an earlier picture of the same user:
        first: when of so many first tags
        overlap: more than so many are shared.
        against: the earlier pictures it is compared with: "seen", all that came as far as this rule, or "kept" ones.

    Example:
        >>> Rules().shared
        4
    """

    least_count: int = 1000
    most_tags: int | None = None
    least_tags: int = 5
    alphabetical: bool = True
    similar: bool = True
    first: int = 5
    overlap: int = 3
    against: str = "seen"

    def __post_init__(self) -> None:
        if self.against not in AGAINST:
            raise DataError(f"pictures are compared with those {' or '.join(AGAINST)} before, not {self.against!r}")
        if not 0 <= self.overlap < self.first <= 20:
            raise DataError(
                f"of {self.first} first tags more than {self.overlap} cannot be shared, or it costs too much"
            )

    @property
    def shared(self) -> int:
        """How many first tags make two pictures similar."""
        return self.overlap + 1

"""Pictures that a corpus names by their web addresses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from excite.errors import FetchError, ImageError
from excite.tags.images.base import WEB, Pictures, shown
from excite.tags.images.fetched import Fetched

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Linked"]

MOST_FETCHED = 64_000_000
LONGEST_ADDRESS = 2000  # more than servers take


@dataclass(frozen=True)
class Linked(Pictures):
    """Pictures of another place, or fetched where their names are web addresses.

    Whoever wrote the corpus decides which addresses this machine asks for, also inside its own network: so this has to
    be asked for.

    Args:
        others: where the pictures lie whose names are no addresses.
        cache: where fetched pictures are kept; each is fetched once.

    Example:
        >>> Linked(open_pictures("photos"), Path("cache")).read("https://example.org/cat.jpg")  # doctest: +SKIP
    """

    others: Pictures
    cache: Path

    @property
    def groups(self) -> int:
        """As many as the other pictures have."""
        return self.others.groups

    def group(self, name: str) -> int:
        """That of the other pictures; the fetched ones are in the first."""
        return 0 if name.startswith(WEB) else self.others.group(name)

    def encoded(self, name: str) -> bytes:
        """The bytes that the address gave."""
        if not name.startswith(WEB):
            return self.others.encoded(name)
        if len(name) > LONGEST_ADDRESS:
            raise ImageError(f"{shown(name)} cannot be had: the address is too long ({len(name)} letters)")
        try:
            return self._fetched.get(name).read_bytes()
        except FetchError as error:
            raise ImageError(f"{shown(name)} cannot be had: {error}") from None
        except OSError as error:
            raise ImageError(f"{shown(name)} cannot be read from {self.cache}: {error.strerror or error}") from None

    def state(self, name: str) -> str:
        """The address: what it gives is fetched once."""
        return name if name.startswith(WEB) else self.others.state(name)

    @cached_property
    def _fetched(self) -> Fetched:
        return Fetched(self.cache / "web", ".picture", most_each=MOST_FETCHED)

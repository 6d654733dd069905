"""What a unit is handed, not multiplied out yet.

A competition hands each child what a response of 1 earns, times its response. The next competition below multiplies
that with what its own parents' totals allow. Both factors are the same for all signals, so they are multiplied with
each other first and with the signals once. And a child that did not respond gets nothing: whoever knows that a share
has its response as a factor need not look for such children.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, overload

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

__all__ = ["Pile", "Share", "added", "whole"]


class Share(NamedTuple):
    """``values * by``, [signals, *units], which is nothing where the response of the units is not above 0.

    Attributes:
        values: of each signal.
        by: the response of the units, at any positive scale, [*units]; None: it is in the values already.
    """

    values: Tensor
    by: Tensor | None

    @property
    def whole(self) -> Tensor:
        """Multiplied out.

        Example:
            >>> Share(torch.ones(2, 1), torch.tensor([3.0])).whole.tolist()
            [[3.0], [3.0]]
        """
        return self.values if self.by is None else self.values * self.by

    def times(self, factor: Tensor) -> Tensor:
        """Multiplied out and with a factor [*units], which costs each signal one product.

        Example:
            >>> Share(torch.ones(2, 1), torch.tensor([3.0])).times(torch.tensor([0.5])).tolist()
            [[1.5], [1.5]]
        """
        return self.values * (factor if self.by is None else self.by * factor)


@overload
def whole(arrived: None) -> None: ...
@overload
def whole(arrived: Tensor | Share) -> Tensor: ...
def whole(arrived: Tensor | Share | None) -> Tensor | None:
    """Multiplied out, whether it is already or not.

    Example:
        >>> whole(Share(torch.ones(1, 1), torch.tensor([3.0]))).item(), whole(None)
        (3.0, None)
    """
    return arrived.whole if isinstance(arrived, Share) else arrived


def added(shares: Sequence[Tensor | Share]) -> Tensor | Share:
    """The sum of what comes from several parents, all of them nobody else's.

    Example:
        >>> by = torch.tensor([3.0])
        >>> added([Share(torch.ones(1, 1), by), Share(torch.ones(1, 1), by)]).values.item()
        2.0
    """
    pile = Pile()
    for share in shares:
        pile.add(share, owned=True)
    return pile.taken()


class Pile:
    """What has arrived at the outputs of one operation, added up in as few steps as possible."""

    def __init__(self) -> None:
        self._share: Share | None = None  # all that has the same factor
        self._rest: Tensor | None = None  # all else, multiplied out
        self._silent = True  # nothing of the rest is where the response of the units is not above 0
        self._owned = [False, False]  # whether nobody else looks at the share's values, and at the rest

    def add(self, arrived: Tensor | Share, *, owned: bool = False) -> None:
        """Add what comes from one parent; ``owned``: nobody else will look at it."""
        if isinstance(arrived, Share) and arrived.by is not None:
            if self._share is None:
                self._share, self._owned[0] = arrived, owned
                return
            if self._share.by is arrived.by:
                values = _plus(self._share.values, arrived.values, in_place=self._owned[0])
                self._share, self._owned[0] = Share(values, arrived.by), True
                return
            owned = True  # it is made here
        self._silent = self._silent and isinstance(arrived, Share)
        more = whole(arrived)
        if self._rest is None:
            self._rest, self._owned[1] = more, owned
        else:
            self._rest, self._owned[1] = _plus(self._rest, more, in_place=self._owned[1]), True

    def room(self) -> Share | None:
        """Take out what can be added to in place: a share whose values nobody else looks at."""
        share = self._share if self._owned[0] else None
        self._share = None if share is not None else self._share
        return share

    def taken(self) -> Tensor | Share:
        """All of it."""
        if self._rest is None:
            if self._share is None:
                raise ValueError("nothing has arrived")
            return self._share
        total = self._rest
        if self._share is not None:
            factor = self._share.by
            if factor is None:
                raise ValueError("a share without a factor is a rest")
            values = self._share.values
            total = total.addcmul_(values, factor) if self._owned[1] else torch.addcmul(total, values, factor)
        return Share(total, None) if self._silent else total


def _plus(total: Tensor, more: Tensor, *, in_place: bool) -> Tensor:
    return total.add_(more) if in_place else total + more

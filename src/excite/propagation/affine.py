"""The rule of everything that is weighted: children win in proportion to their excitation."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from excite.errors import SignalError
from excite.propagation.deciding import is_known
from excite.propagation.extreme import scale_for, scaled_by, weight_scale
from excite.propagation.keeping import version_of
from excite.propagation.layout import side_by_side
from excite.propagation.products import Traced
from excite.propagation.rules import Rule, total_of
from excite.propagation.shares import Share, added, whole
from excite.propagation.signed_weights import Part

if TYPE_CHECKING:
    from excite.propagation.keeping import Kept
    from excite.propagation.products import Back, Product
    from excite.propagation.rules import Shares

__all__ = ["Affine", "Push", "Side"]

Push = tuple[Tensor, int]  # children that are all on one side of their rest, and which side that is
Side = tuple[int, bool]  # pushed up (1) or down (-1), and whether by rows that were turned

SIDES: tuple[Side, ...] = ((1, False), (-1, False), (1, True), (-1, True))  # in the order of the ports


class Affine(Rule):
    """The children of a unit share its probability in proportion to their excitation (Eqns. 4 and 10).

    Args:
        product: linear in its first argument: (child, weight) -> response without bias, and its transpose.
        child: the response of the children: a_j in the paper.
        weight: w_ji; None for pooling, whose weights are all positive.
        rest: lambda, the minimum of the children's activation function (Eqn. 5), where it is not 0.
        row_dim: the output dimension whose units each have one row of the weights, where there is one.
        grouped: each row sees only some of the children's channels, so that it cannot stand alone.
        kept: the weights are a parameter, whose parts may be kept for the next image.
    """

    def __init__(
        self,
        product: Product,
        child: Kept,
        weight: Tensor | None,
        rest: Tensor | None,
        row_dim: int | None = None,
        *,
        grouped: bool = False,
        kept: bool = False,
    ) -> None:
        self.product = product
        self.child = child
        self.weight = weight
        self.rest = rest
        self.row_dim = row_dim
        self.grouped = grouped
        self.kept = kept
        self.orientation: Tensor | None = None  # of each row: -1 where a norm behind it turns the response round
        # How much goes to the children that pushed a unit its way, and to those that pushed it the other way. At the
        # top: how much of the unit and of its dual is cued.
        self.unit, self.dual = 1.0, 0.0
        self.again = True  # other signals may come later: what serves them all is kept
        self._contests: dict[tuple[Side, bool], Contest] = {}
        self._seen = None if weight is None else version_of(weight)  # when the response was computed

    @property
    def port_count(self) -> int:
        """Pushed up, pushed down; and the same for rows that were turned, where there are rows."""
        return 2 if self.row_dim is None else 4

    def down(self, *probabilities: Tensor | None) -> Shares:
        """P_n = A * W+ (P_{n-1} / (W+^T A)), for units pushed up (with W+) and for units pushed down (with W-)."""
        return tuple(map(whole, self.hand_down(*probabilities)))

    def hand_down(
        self, *arrived: Tensor | Share | None, onto: Share | None = None
    ) -> tuple[Tensor | Share | None, ...]:
        """As `down`; where all children responded above their rest, what they get is not multiplied out.

        ``onto`` is what they have got already: it may be added to in place, and then its values are in the answer.
        """
        self._check_weights()
        shares: list[Tensor | Share] = []
        for (direction, turned), probability in zip(SIDES, arrived, strict=False):
            for weight, side in ((self.unit, direction), (self.dual, -direction)):
                if probability is not None and weight:
                    room = onto if weight == 1 and not shares else None
                    share = self._competition((side, turned), self._exact(probability), room)
                    shares.append(share if weight == 1 else _weighed(share, weight))
        if not shares:
            some = whole(next(each for each in arrived if each is not None))
            return (some.new_zeros(len(some), *self.child.tensor.shape),)
        return (shares[0] if len(shares) == 1 else added(shares),)

    def _exact(self, probability: Tensor | Share) -> Tensor | Share:
        if isinstance(probability, Share):
            same = probability.values.dtype == self._dtype
            return probability if same else probability.whole.to(self._dtype)
        return probability.to(self._dtype)

    def row(self, number: int) -> Affine:
        """The same competition for the units of one row of the weights alone, which costs a fraction."""
        return self._rows(slice(number, number + 1))

    def _rows(self, rows: slice | Tensor) -> Affine:
        weight = None if self.weight is None else self.weight[rows]
        alone = type(self)(self.product, self.child, weight, self.rest, self.row_dim)
        alone.orientation = None if self.orientation is None else self.orientation[rows]
        alone.normalised = self.normalised
        alone.__dict__["pushes"] = self.pushes
        return alone

    def _competition(self, side: Side, probability: Tensor | Share, onto: Share | None = None) -> Tensor | Share:
        """The children that pushed to one side share the probability of their parents."""
        if self.cued and self.row_dim == 1 and not self.grouped and is_known():
            probability = whole(probability)
            rows = probability.transpose(0, 2).flatten(1).any(1).nonzero()[:, 0]  # few units are cued
            if not len(rows):  # torch has no convolution without outputs
                return probability.new_zeros(len(probability), *self.child.tensor.shape)
            return Contest(self._rows(rows), side).shares(probability.index_select(2, rows))
        key = side, self.normalised
        contest = self._contests.get(key)
        if contest is None:
            contest = Contest(self, side)
            if self.again:
                self._contests[key] = contest
        return contest.shares(probability, onto)

    def part(self, sign: int, *, turned: bool) -> Part | None:
        """The positive or the negative weights."""
        if self.weight is None:
            return None
        orientation = self.orientation if turned else None
        kept = self.kept and is_known() and self.scale == 1
        return Part(self.weight, sign, orientation, self._dtype, kept=kept, scale=self.scale)

    @cached_property
    def scale(self) -> float:
        """What the weights are multiplied with, which no competition sees."""
        return weight_scale(self.weight) if self.weight is not None and self.normalised and is_known() else 1.0

    @property
    def _dtype(self) -> torch.dtype:
        """Half precision cannot hold sums of many small products: the shares are computed in float32."""
        dtype = self.child.tensor.dtype
        return torch.float32 if dtype in {torch.float16, torch.bfloat16} else dtype

    def _check_weights(self) -> None:
        if self.weight is not None and self._seen != version_of(self.weight):
            raise SignalError(
                "the network's weights were changed since it looked at the image: look at it again (a new Sweep)"
            )

    @cached_property
    def pushes(self) -> list[Push]:
        """The children above their rest, and those below it if there are any: the same for both sides."""
        if self.rest is not None:
            return _apart(self.child.tensor.detach().to(self._dtype) - self.rest)
        if self.child.pushes is None:
            self.child.pushes = _apart(self.child.tensor.detach().to(self._dtype))
        return self.child.pushes

    def forget(self) -> None:
        """Let go of what is only kept for later signals."""
        self._contests.clear()
        self.__dict__.pop("pushes", None)
        self.child.pushes = None

    @property
    def responses(self) -> Tensor | None:
        """The children's responses, where those are what pushes: none of them is negative, and they rest at 0."""
        (push, sign), *others = self.pushes
        return push if sign > 0 and self.rest is None and not others and is_known() else None


class Contest:
    """One side of a competition: the children that push to it, and what each push earns. It serves all signals."""

    def __init__(self, rule: Affine, side: Side) -> None:
        direction, turned = side
        self.shape = rule.child.tensor.shape
        self.pushes: list[tuple[Tensor, Back]] = []
        totals = []
        for push, sign in rule.pushes:
            if rule.weight is None and sign != direction:
                continue  # positive weights: only children of that sign push to that side
            total, back = rule.product(push, rule.part(direction * sign, turned=turned))
            self.pushes.append((push, back))
            totals.append(total)
        self.earned = rule.earned(total_of(totals), direction) if totals else None
        self.fresh = not isinstance(rule.product, Traced)
        self.responses = rule.responses

    def shares(self, arrived: Tensor | Share, onto: Share | None = None) -> Tensor | Share:
        """What each child gets, [signals, *child]; ``onto`` as in `Affine.hand_down`."""
        if self.earned is None:  # no child of that sign at all: nobody competes
            some = whole(arrived)
            return some.new_zeros(len(some), *self.shape)
        ratio = arrived.times(self.earned) if isinstance(arrived, Share) else arrived * self.earned
        if not self.fresh:  # what autograd gives may be its argument itself
            return total_of([back(ratio) * push for push, back in self.pushes])
        if self.responses is not None and len(self.pushes) == 1:
            room = onto.values if onto is not None and onto.by is self.responses else None
            return Share(self.pushes[0][1](ratio, room), self.responses)
        return total_of([back(ratio).mul_(push) for push, back in self.pushes])


def _weighed(share: Tensor | Share, weight: float) -> Tensor | Share:
    return Share(share.values * weight, share.by) if isinstance(share, Share) else share * weight


def _apart(child: Tensor) -> list[Push]:
    """Activations that are above 0, and those below if there are any; extreme ones at another scale."""
    if not is_known():
        return [(child.clamp(min=0), 1), (child.clamp(max=0), -1)]
    if not child.numel():
        return [(child, 1)]
    least, most = (float(end) for end in child.aminmax())
    child = side_by_side(scaled_by(child, scale_for(max(-least, most))))
    return [(child, 1)] if least >= 0 else [(child.clamp(min=0), 1), (child.clamp(max=0), -1)]

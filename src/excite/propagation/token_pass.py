"""Excitation Backprop between the tokens of a transformer: the winners are tokens, not their channels.

In a convolutional network a neuron is a channel at a position, and says by itself what was seen there. In the stream of
tokens of a transformer no channel does: a token is one vector, blocks add to it along arbitrary directions, and half of
its channels always move against what the others say. Channel by channel a class and its dual therefore find the same
winners, and the contrast is lost after a few blocks (docs/theory.md has the figures).

So the neuron is the token, and its response is taken along the direction d in which the signal reads it: for this
image, with attention weights, gates and norms' deviations held constant, the cued output is a sum of what the tokens of
a layer contribute to it, and token i of a block's output is the sum of what it kept and of what attention gave it,

    d_i . x_i = s_i + sum_j f_ij,     f_ij = sum over heads of w_ij (g_i . v_j)

with weights w, values v, and g the same direction behind the output projection. These terms compete as in Eqn. 4:

    P(j | i) = (f_ij)+ / Z_i  for j's value,  (s_i)+ / Z_i  for staying at i,     Z_i = (s_i)+ + sum_j (f_ij)+

Everything else in a block (the dense layers, norms) acts on each token alone and moves no probability. It starts at the
tokens that the classifier reads, in proportion to their positive contributions. The dual unit is the direction -d: its
winners are the terms below zero, and the contrastive map is the difference of both, as in section 3.3 of the paper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from excite.errors import LayerError
from excite.propagation.excitation_pass import check_shape
from excite.propagation.fast import choose
from excite.propagation.graph import Subgraph, carry, check
from excite.propagation.linearised import LINEARISED
from excite.propagation.provenance import leads_to_tap
from excite.propagation.taps import ForwardPass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Stream = dict[str, tuple[str, ...]]
"""Layers with the same tokens, from the lowest to the highest, each with the edges of attention before the next one."""


AT_ONCE = 2**22  # numbers that arrive at all layers and edges together, for the signals that are propagated at once


class TokenPass(ForwardPass):
    """The forward pass of a transformer, and the winning probabilities of the tokens of its layers for any signal.

    Args:
        module: the network. It is left exactly as it was found.
        inputs: what it is called with.
        stream: the layers to read and all above them up to the classifier, whose outputs are the same tokens [N, T, C],
            and the edges of attention above each (see `excite.propagation.attention_layers`).

    Example:
        >>> block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        >>> net = nn.Sequential(nn.Linear(3, 8), block, nn.Flatten(), nn.Linear(32, 5)).eval()
        >>> tokens = TokenPass(net, torch.rand(1, 4, 3), {"0": ("1.self_attn:edges",), "1": ()})
        >>> arrived = tokens.down(torch.tensor([[0.0, 1.0, 0.0, 0.0, 0.0]]))["0"]
        >>> arrived.shape, round(float(arrived.sum()), 5)
        (torch.Size([1, 4, 1]), 1.0)
    """

    def __init__(self, module: nn.Module, inputs: Tensor | tuple[object, ...], stream: Stream) -> None:
        self.stream, self._carry = stream, choose(carry)
        self._graphs: dict[tuple[str, ...], Subgraph] = {}
        edges = [edge for each in stream.values() for edge in each]
        super().__init__(module, inputs, [*stream, *edges], LINEARISED)
        for edge in edges:
            self._check_edges(edge)

    top = ForwardPass.top  # part of the public interface

    def _probes_reached(self) -> set[Tensor]:
        return check(self._traced, linear=True) if leads_to_tap(self._traced) else set()

    def _check_edges(self, edge: str) -> None:
        tokens = self.readings[next(iter(self.stream))].activation.shape[:2]
        weights = self.readings[edge].activation.shape
        if len(weights) != 4 or (weights[0], *weights[2:]) != (*tokens, tokens[1]):
            raise LayerError(f"the weights {tuple(weights)} at {edge!r} are not between the tokens {tuple(tokens)}")

    def down(
        self,
        signal: Tensor,
        *,
        unit: float = 1.0,
        dual: float = 0.0,
        normalised: bool = True,
        layers: Sequence[str] | None = None,
    ) -> dict[str, Tensor]:
        """The winning probabilities of the tokens of each layer for a signal P(A_0) over the output units.

        Args:
            signal: as for `ExcitationPass.down`. Units with positive weights are cued together, along the direction of
                their weighted sum; of those with negative weights the map is subtracted.
            unit: how much of the cued units is propagated,
            dual: and how much of their dual units, whose weights are the negatives.
            normalised: False leaves out the normaliser Z; the map then has no meaningful scale.
            layers: the layers to read; None: all of the stream.

        Returns:
            for each layer a tensor [N, T, 1], with a leading dimension where ``signal`` has one; a map [N, 1, h, w]
            where its grid is known.
        """
        several = signal.dim() > self.output.dim()
        signals = signal if several else signal[None]
        check_shape(signals[0] if len(signals) else signal, self.output)
        wanted = list(self.stream) if layers is None else list(layers)
        some = sum(reading.activation.numel() for reading in self.readings.values())
        parts = torch.split(signals, max(1, AT_ONCE // some))
        each = [self._arrived(part, unit, dual, wanted, normalised=normalised) for part in parts]
        found = {layer: torch.cat([one[layer] for one in each]) for layer in wanted}
        return self.in_places(found if several else {layer: values[0] for layer, values in found.items()})

    def _arrived(
        self, signals: Tensor, unit: float, dual: float, layers: Sequence[str], *, normalised: bool
    ) -> dict[str, Tensor]:
        """The probabilities [signals, N, T, 1] at some layers: each of the signals' two signs with its dual."""
        images, tokens = self.readings[layers[0]].activation.shape[:2]
        found = {
            layer: signals.new_zeros(len(signals), images, tokens, dtype=exact(signals[:0]).dtype) for layer in layers
        }
        for factor in (1.0, -1.0):
            half = (signals * factor).clamp(min=0)
            cued = half.flatten(1).any(1).nonzero()[:, 0]
            if not len(cued):
                continue
            mass = exact(half[cued].flatten(2).sum(2))
            terms = self._terms(half[cued], layers)
            for direction, amount in ((1, unit * factor), (-1, dual * factor)):
                if amount:
                    for layer, won in self._chain(terms, direction, mass, normalised=normalised):
                        if layer in found:
                            found[layer][cued] += amount * won
        return {layer: values[..., None] for layer, values in found.items()}

    def _terms(self, signals: Tensor, layers: Sequence[str]) -> dict[str, tuple[Tensor, Tensor | None]]:
        """From the highest layer down: its tokens' contributions [signals, N, T], and the flow [.., T, T] above."""
        names = list(self.stream)
        names = names[min(map(names.index, layers)) :]
        edges = [edge for layer in names for edge in self.stream[layer]]
        arrived = self._directions(signals, (*names, *edges))
        terms: dict[str, tuple[Tensor, Tensor | None]] = {}
        for layer in reversed(names):
            contributions = exact(arrived.pop(layer)) * exact(self.readings[layer].activation)
            terms[layer] = contributions.sum(-1), self._flow(arrived, self.stream[layer])
        return terms

    def _directions(self, signals: Tensor, layers: tuple[str, ...]) -> dict[str, Tensor]:
        """The directions d along which the signals read the layers' tokens; at edges g_i . v_j."""
        if layers not in self._graphs:
            probes = [self.readings[layer].probe for layer in layers]
            self._graphs[layers] = Subgraph([get_gradient_edge(self._traced)], probes)
        with torch.inference_mode(mode=False):
            found = self._carry(self._graphs[layers], [signals.to(self.output.dtype)])
        self.check_maps(found)
        return dict(zip(layers, found, strict=True))

    def _flow(self, arrived: dict[str, Tensor], edges: Sequence[str]) -> Tensor | None:
        """The flow [signals, N, T, T] along edges: weights times what arrived there, summed over heads and edges."""
        flow: Tensor | None = None
        for edge in edges:
            heads = zip(*(each.unbind(-3) for each in (arrived.pop(edge), self.readings[edge].activation)), strict=True)
            for values, weights in heads:
                flow = exact(values) * exact(weights) if flow is None else flow.addcmul_(exact(values), exact(weights))
        return flow

    @staticmethod
    def _chain(
        terms: Mapping[str, tuple[Tensor, Tensor | None]], sign: int, mass: Tensor, *, normalised: bool
    ) -> Iterator[tuple[str, Tensor]]:
        """The probabilities [signals, N, T] at each layer from the highest down, by the terms with that sign."""
        won: Tensor | None = None
        for layer, (contributions, flow) in terms.items():
            if won is None or flow is None:  # the highest layer
                start = (sign * contributions).clamp(min=0)
                start = torch.where(start.sum(-1, keepdim=True) > 0, start, contributions.abs())  # a cued unit is on
                won = start * _reciprocal(start.sum(-1, keepdim=True)) * mass[..., None] if normalised else start
            else:
                stays = (sign * (contributions - flow.sum(-2))).clamp(min=0)
                moves = (sign * flow).clamp(min=0)
                total = stays + moves.sum(-1)
                stays = torch.where(total == 0, 1, stays)  # nothing was added to it: it keeps what it has
                ratio = won * _reciprocal(torch.where(total == 0, 1, total)) if normalised else won
                won = ratio * stays + (ratio[..., None, :] @ moves)[..., 0, :]
            yield layer, won


def exact(values: Tensor) -> Tensor:
    """Values in a type that can hold sums of many small numbers."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _reciprocal(total: Tensor) -> Tensor:
    return torch.where(total == 0, 0, 1 / total)

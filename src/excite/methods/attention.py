"""Methods for transformers: what the weights of attention say by themselves, and with their gradients.

Both follow tokens from the classifier down to the image. An attention with the weights ``A`` (a row for each output
token, with the sum 1) adds its mixture of tokens to the tokens that it read; so ``I + A`` says which of those are in
an output token, and the product over all blocks which tokens of the image are in the ones that the classifier reads.
Only rows of that product are needed: ``r (I + A_L) ... (I + A_1)``, from the top down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from excite.errors import MethodError
from excite.methods.base import Maps, Method, Passes
from excite.propagation.excitation_pass import Units, signals_at

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor


def _rollout_step(weights: Tensor, _gradient: Tensor) -> Tensor:
    """Half of an output token is the token itself, half the mixture: the mean over heads of (A + I) / 2."""
    mixed = weights.mean(1)
    mixed = mixed + torch.eye(mixed.shape[-1], dtype=mixed.dtype, device=mixed.device)
    return mixed / mixed.sum(-1, keepdim=True)


def _chefer_step(weights: Tensor, gradient: Tensor) -> Tensor:
    """The weights that speak for the concept, beside the token itself: I + the mean over heads of (dy/dA * A)+."""
    mixed = (gradient * weights).clamp(min=0).mean(1)
    return mixed + torch.eye(mixed.shape[-1], dtype=mixed.dtype, device=mixed.device)


def _followed(name: str, step: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Passes, Units, Sequence[str]], Maps]:
    """The share of each token below the first attention in the tokens that the classifier reads."""

    def maps(passes: Passes, units: Units, layers: Sequence[str]) -> Maps:
        forward, edges = passes.gradients(), passes.attention
        lowest = min(edges.index(layer) for layer in layers)
        for layer in edges[lowest:]:
            _check_global(name, layer, forward.activations[layer], len(forward.output))
        gradients = [forward.down(signal, layers=edges[lowest:]) for signal in signals_at(forward.output, units)]
        read = _tokens_read([each[edges[-1]] for each in gradients])
        found: Maps = {}
        share = read.expand(len(units), len(forward.output), -1)
        for layer in reversed(edges[lowest:]):
            steps = [step(forward.activations[layer], gradient[layer]) for gradient in gradients]
            share = (share[:, :, None] @ torch.stack(steps))[:, :, 0]
            if layer in layers:
                found[layer] = passes.tokens(share.shape[-1]).over_tokens(share)
        return found

    return maps


def _check_global(name: str, layer: str, weights: Tensor, images: int) -> None:
    """Refuse attention that is not one matrix between the same tokens for each image."""
    if weights.dim() != 4 or len(weights) != images or weights.shape[-1] != weights.shape[-2]:
        raise MethodError(
            f"{name} follows tokens through attention between all of them, but the weights at {layer!r} have the shape "
            f"{tuple(weights.shape)} (windows, fewer keys, or channels): use c-mwp or grad-cam for this network"
        )


def _tokens_read(gradients: Sequence[Tensor]) -> Tensor:
    """The tokens that the classifier reads, with equal shares: a class token, or all that it pools.

    Behind the last attention nothing mixes tokens. So they are those whose weights there make a difference.
    """
    read = torch.stack(list(gradients)).ne(0).sum((0, 1, 2, 4)).gt(0).to(gradients[0].dtype)
    return read / read.sum().clamp(min=1)


ROLLOUT = Method(
    "rollout",
    "the weights of attention, multiplied over all blocks; the same for every concept (Abnar 2020)",
    _followed("rollout", _rollout_step),
    place="attention",
    forward="gradients",
)
CHEFER = Method(
    "chefer",
    "the weights of attention times their gradients, positive parts, over all blocks (Chefer 2021)",
    _followed("chefer", _chefer_step),
    place="attention",
    forward="gradients",
)

"""Top-down signals: distributions over a network's output units, P(A_0) in the paper."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import index
from typing import SupportsIndex

import torch
from torch import Tensor

from excite.errors import SignalError

Units = Sequence[Sequence[Mapping[int, float]]]
"""Where signals start: for each signal and each image, the weights of output units."""


def prior(output: Tensor, units: Mapping[int, float]) -> Tensor:
    """A signal that cues some classes with given weights, the same for every image of the batch.

    Where the output is a map (a fully convolutional network), the share of each class is spread over space in
    proportion to ``exp(logit)``, the classifier's own confidence at each position, as in the authors' code.

    Example:
        >>> prior(torch.zeros(1, 3), {0: 0.5, 2: 0.5})
        tensor([[0.5000, 0.0000, 0.5000]])
    """
    classes = output.shape[1]
    signal = torch.zeros_like(output)
    for unit, weight in units.items():
        if not -classes <= unit < classes:
            raise SignalError(f"there is no output unit {unit}: this network has units 0 to {classes - 1}")
        if not math.isfinite(weight):
            raise SignalError(f"the weight of output unit {unit} is {weight}: give a finite number")
        signal[:, unit] += weight * _confidence(output[:, unit])
    return signal


def signals_at(output: Tensor, units: Units) -> Tensor:
    """The signals [signals, *output.shape]: for each image a prior over its output units (paper: P(A_0)).

    Example:
        >>> signals_at(torch.zeros(1, 3), [[{0: 1.0}], [{1: 0.5, 2: 0.5}]])
        tensor([[[1.0000, 0.0000, 0.0000]],
        <BLANKLINE>
                [[0.0000, 0.5000, 0.5000]]])
    """
    rows = [prior(output[k : k + 1], weights) for each in units for k, weights in enumerate(each)]
    return torch.cat(rows).view(len(units), *output.shape)


def check_shape(signal: Tensor, output: Tensor) -> None:
    """Refuse a signal that is not of the output's shape."""
    if signal.shape != output.shape:
        raise SignalError(
            f"the signal has shape {tuple(signal.shape)} but the output has {tuple(output.shape)}: give "
            "one number for each output unit"
        )


def as_signal(signal: Tensor | SupportsIndex | Mapping[int, float], output: Tensor) -> Tensor:
    """Any form of signal as a tensor with a leading dimension for several signals.

    Args:
        signal: a class; weights for several classes (their sum is one signal); a tensor of integers with one class
            for each image; a tensor of floats: one weight for each class, or of the output's shape, or several
            such in a leading dimension.
        output: the network's output, [images, classes, ...].

    Returns:
        [signals, images, classes, ...]. A single signal is one signal.
    """
    if isinstance(signal, SupportsIndex) and not isinstance(signal, Tensor):
        return prior(output, {index(signal): 1.0})[None]
    if isinstance(signal, Mapping):
        return prior(output, signal)[None]
    if not isinstance(signal, Tensor):
        raise SignalError(f"a signal is a class, weights for classes, or a tensor, not {type(signal).__name__}")
    if not signal.is_floating_point():
        return _class_for_each(signal, output)[None]
    if not bool(torch.isfinite(signal).all()):
        raise SignalError("the signal has values that are not finite")
    signal = signal.detach().to(output.device, output.dtype)
    if signal.shape == output.shape[1:2]:
        return prior(output, dict(enumerate(signal.tolist())))[None]
    if signal.shape[-output.dim() :] == output.shape and signal.dim() <= output.dim() + 1:
        return signal.reshape(-1, *output.shape)
    raise SignalError(
        f"a signal of shape {tuple(signal.shape)} does not fit an output of shape {tuple(output.shape)}: give one "
        "weight for each class, or a tensor of the output's shape, or several of those in a leading dimension"
    )


def _class_for_each(classes: Tensor, output: Tensor) -> Tensor:
    if classes.dim() == 0:
        return prior(output, {int(classes): 1.0})
    if classes.shape != output.shape[:1]:
        raise SignalError(
            f"{classes.numel()} classes were given for {output.shape[0]} pictures: give one for each picture, or use "
            "a tensor of floats to cue several"
        )
    return torch.cat([prior(row[None], {int(unit): 1.0}) for row, unit in zip(output, classes, strict=True)])


def _confidence(logits: Tensor) -> Tensor:
    """exp(logit), normalised over space; 1 for a single unit."""
    if logits.dim() == 1:
        return torch.ones_like(logits)
    exact = torch.promote_types(logits.dtype, torch.float32)
    return torch.softmax(logits.flatten(1), dim=1, dtype=exact).to(logits.dtype).view_as(logits)

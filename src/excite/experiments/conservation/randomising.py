"""Random weights under which nothing can hide: scales of both signs, layer scales that matter, biases as asked for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["fold_norms", "randomise"]

SHIFTS = ("bias", "beta", "tau", "pos_embed")  # what parameters are called that are added to a response
NEGATIVE = 1 / 3  # of the scales
BIAS = 0.2  # of a response's own size

_BatchNorm = nn.modules.batchnorm._BatchNorm  # noqa: SLF001 - the parent of all batch norms has no public name
_Convolution = nn.modules.conv._ConvNd  # noqa: SLF001 - and so has that of all convolutions


def randomise(module: nn.Module, inputs: Tensor, seed: int, *, biases: bool = False) -> None:
    """Give a network random weights.

    Weights are normal and keep the size of responses. Scales of norms, layers and branches lie between 0.5 and 1.5, a
    third of them negative. Biases, shifts and running means are 0. Running variances are half to twice the power of
    what arrives there in a run on ``inputs``, so that deep networks neither fade nor explode.

    Args:
        module: the network; its parameters are overwritten.
        inputs: what to run it on.
        seed: the same seed gives the same weights.
        biases: draw the biases, shifts and running means at random as well.

    Example:
        >>> network = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8)).eval()
        >>> randomise(network, torch.rand(1, 1, 6, 6), seed=0)
        >>> bool((network[1].weight < 0).any()), bool(network[1].bias.any())
        (True, False)
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for owner in module.modules():
            for name, parameter in owner.named_parameters(recurse=False):
                _draw(owner, name, parameter, generator, BIAS if biases else 0.0)
        hooks = [
            child.register_forward_pre_hook(_statistics(generator, BIAS if biases else 0.0))
            for child in module.modules()
            if isinstance(child, _BatchNorm) and child.running_var is not None
        ]
        try:
            module(inputs)
        finally:
            for hook in hooks:
                hook.remove()


def _draw(owner: nn.Module, name: str, parameter: Tensor, generator: torch.Generator, bias: float) -> None:
    if name.endswith(SHIFTS):
        parameter.copy_(bias * torch.randn(parameter.shape, generator=generator))
    elif isinstance(owner, _Convolution | nn.Linear) and name == "weight":
        size = math.sqrt(2 / parameter[0].numel())
        parameter.copy_(size * torch.randn(parameter.shape, generator=generator))
    elif isinstance(owner, nn.PReLU):
        parameter.uniform_(0, 0.5, generator=generator)
    elif parameter.numel() == 1:  # the gain of a branch
        parameter.uniform_(0.5, 1.5, generator=generator)
    elif parameter.numel() == max(parameter.shape) and "token" not in name:  # one for each channel
        parameter.uniform_(0.5, 1.5, generator=generator)
        parameter.mul_(torch.where(torch.rand(parameter.shape, generator=generator) < NEGATIVE, -1.0, 1.0))


def _statistics(generator: torch.Generator, bias: float) -> Callable[[nn.Module, Any], None]:
    def measure(norm: Any, arguments: Any) -> None:
        power = arguments[0].square().mean()
        if not 0 < power < torch.inf:
            power = torch.ones(())
        spread = torch.empty_like(norm.running_var).uniform_(0.5, 2, generator=generator)
        norm.running_var.copy_(power * spread)
        norm.running_mean.copy_(bias * power.sqrt() * torch.randn(spread.shape, generator=generator))

    return measure


def fold_norms(module: nn.Module, inputs: Tensor) -> int:
    """Let each convolution do the scaling of the batch norm behind it, and that norm none; the number of such pairs.

    The network stays the same function (up to rounding) and has no negative scales there any more, so its maps must
    stay the same too. Norms must be without shifts.

    Example:
        >>> network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)).eval()
        >>> network[1].weight.data = torch.tensor([2.0, -3.0])
        >>> fold_norms(network, torch.rand(1, 1, 6, 6)), network[1].weight.tolist()
        (1, [1.0, 1.0])
    """
    made: dict[int, tuple[nn.Module, Tensor]] = {}  # by the tensor's identity, which lasts as long as it is kept
    pairs: dict[nn.Module, nn.Module] = {}

    def convolved(convolution: nn.Module, _arguments: Any, answer: Tensor) -> None:
        made[id(answer)] = convolution, answer

    def normalised(norm: nn.Module, arguments: Any) -> None:
        if id(arguments[0]) in made:
            pairs[norm] = made[id(arguments[0])][0]

    hooks = [child.register_forward_hook(convolved) for child in module.modules() if isinstance(child, nn.Conv2d)]
    hooks += [
        child.register_forward_pre_hook(normalised) for child in module.modules() if isinstance(child, _BatchNorm)
    ]
    with torch.no_grad():
        try:
            module(inputs)
        finally:
            for hook in hooks:
                hook.remove()
        for norm, convolution in pairs.items():
            _fold(norm, convolution)
    return len(pairs)


def _fold(norm: Any, convolution: Any) -> None:
    scale = (norm.running_var + norm.eps).rsqrt()
    if norm.weight is not None:
        scale = scale * norm.weight
        norm.weight.fill_(1.0)
    convolution.weight.mul_(scale.reshape(-1, 1, 1, 1))
    norm.running_var.fill_(1.0 - norm.eps)

"""Edges of attention as layers: the weights ``[N, heads, queries, keys]`` of a module are read as ``NAME:edges``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from excite.propagation.attention import EDGES
from excite.propagation.mode import RuleMode
from excite.propagation.operations import OPERATIONS
from excite.propagation.taint import Taint
from excite.propagation.taps import activated, as_found, plain_modules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor, nn


def attention_layers(module: nn.Module, inputs: Tensor | tuple[Any, ...]) -> list[str]:
    """The edges of attention of a network, as names of layers, in the order of computation.

    As a layer, ``NAME:edges`` is the product of attention weights with values that the code of module NAME runs. Its
    activation are the weights ``[N, heads, queries, keys]`` (N counts windows too). What arrives there in an
    `ExcitationPass` is the probability that flows along each edge, from an output token to a value token, over all
    channels of the head; in `Gradients` it is the gradient with respect to the weights.

    Example:
        >>> from torch import nn
        >>> attention_layers(nn.TransformerEncoderLayer(4, 2, batch_first=True).eval(), torch.rand(1, 3, 4))
        ['self_attn:edges']
    """
    return list(attention_shapes(module, inputs))


def attention_shapes(module: nn.Module, inputs: Tensor | tuple[Any, ...]) -> dict[str, torch.Size]:
    """The same names with the shapes of the weights.

    Example:
        >>> from torch import nn
        >>> attention_shapes(nn.TransformerEncoderLayer(4, 2, batch_first=True).eval(), torch.rand(1, 3, 4))
        {'self_attn:edges': torch.Size([1, 2, 3, 3])}
    """
    modules, found = plain_modules(module), list[tuple[str, torch.Size]]()
    taint = Taint(modules)
    mode = RuleMode(OPERATIONS, modules[0], taint)
    mode.read_weights = lambda weights: found.append((mode.module_name(), weights.shape))  # no tap
    arguments = inputs if isinstance(inputs, tuple) else (inputs,)
    with torch.inference_mode(mode=False), torch.no_grad(), as_found(modules), taint, mode:
        modules[0](*map(activated, arguments))
    return dict(zip(_numbered([name for name, _ in found]), [shape for _, shape in found], strict=True))


def _numbered(names: Sequence[str]) -> list[str]:
    """The layers of the modules that multiply weights with values, in that order; several of one are numbered.

    Example:
        >>> _numbered(["a", "b", "a"])
        ['a:edges#0', 'b:edges', 'a:edges#1']
    """
    seen: dict[str, int] = {}
    layers = []
    for name in names:
        seen[name] = seen.get(name, -1) + 1
        layers.append(f"{name}{EDGES}" + (f"#{seen[name]}" if names.count(name) > 1 else ""))
    return layers

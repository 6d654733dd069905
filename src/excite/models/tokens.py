"""Networks of tokens: up to which layer the image's own tokens count, and the stream of tokens through the blocks.

In the last block of a transformer with a class token only that token is read, so what lies there at the image's tokens
has no part in the output, however alive it looks.
"""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn

from excite.propagation.attention import split_edges
from excite.propagation.taps import as_found, heard_in, main_output, plain_modules
from excite.propagation.token_pass import Stream
from excite.propagation.tokens import TokenGrid


def ignored(module: nn.Module, inputs: Tensor, grids: Mapping[str, TokenGrid]) -> set[str]:
    """The layers whose tokens of the image have no part in the output; none where no layer has other tokens.

    A gradient of NaN is sent down from the output: it passes every operation, also weights that are 0, and leaves out
    what is not read. On the device ``meta``, where nothing is computed, all layers count.
    """
    if inputs.is_meta or not any(grid.other_tokens for grid in grids.values()):
        return set()
    module, answers = plain_modules(module)[0], dict[str, Tensor]()

    def keep(name: str, _child: nn.Module, _arguments: Any, answer: Any) -> Any:
        if not isinstance(answer, Tensor) or not answer.requires_grad:
            return answer
        answers[name] = answer
        return answer.clone()  # which the network may overwrite

    with ExitStack() as hooks, as_found(list(module.modules())), torch.enable_grad():
        for name in grids:
            hooks.enter_context(
                module.get_submodule(name).register_forward_hook(partial(heard_in, get_ident(), keep, name))
            )
        output = main_output(module(inputs.detach().clone().requires_grad_()))
    found = torch.autograd.grad(output, list(answers.values()), torch.full_like(output, torch.nan), allow_unused=True)
    reached = dict(zip(answers, found, strict=True))
    return {name for name in grids if not _reaches(reached.get(name), grids[name])}


def _reaches(gradient: Tensor | None, grid: TokenGrid) -> bool:
    return gradient is not None and bool(grid.as_map(gradient).isnan().any())


def chains(module: nn.Module) -> list[dict[str, nn.Module]]:
    """The blocks that follow each other in a network: the members of each of its sequences and lists, by name."""
    sequences = [
        (name, child) for name, child in module.named_modules() if isinstance(child, nn.Sequential | nn.ModuleList)
    ]
    return [
        {f"{name}.{member}".lstrip("."): block for member, block in each.named_children()} for name, each in sequences
    ]


# What mixes positions beside attention; a token behind it is not the token before it.
_MIXING = frozenset(
    """conv1d conv2d conv3d conv_transpose1d conv_transpose2d avg_pool1d avg_pool2d max_pool1d max_pool2d unfold fold
    roll flip adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool2d interpolate upsample grid_sample
    cumsum""".split()
)


def stream_of(
    grids: Mapping[str, TokenGrid], edges: Mapping[str, torch.Size], operations: Iterable[tuple[str, str]]
) -> Stream:
    """The stream of tokens of a plain transformer: its layers, and the edges of attention above each.

    Empty where there is none: where attention is within windows or to fewer keys, or anything else mixes tokens.

    Args:
        grids: of the layers that everything passes through, in the order of computation.
        edges: of all attention, in that order, with the shapes of the weights.
        operations: the running module and the name of each call of the network.
    """
    blocks: dict[str, list[str]] = {}
    for edge, shape in edges.items():
        runs = f"{split_edges(edge)[0]}."  # the module that runs this attention
        block = max((layer for layer in grids if runs.startswith(f"{layer}.")), key=len, default="")
        if not block or len(shape) != 4 or shape[2] != shape[3]:
            return {}
        blocks.setdefault(block, []).append(edge)
    if not blocks:
        return {}
    inside = tuple(f"{block}." for block in blocks)
    below = [layer for layer in grids if list(grids).index(layer) < list(grids).index(next(iter(blocks)))]
    lowest = [layer for layer in below if not layer.startswith(inside)][-1:]
    layers = [*lowest, *blocks]
    usual = grids[layers[-1]]
    even = all(grids[layer] == usual and grids[layer].dims == (-2,) and grids[layer].images == -3 for layer in blocks)
    square = all(shape[2] == usual.count for shape in edges.values())
    mixed = any(name in _MIXING and f"{module}.".startswith(inside) for module, name in operations)
    if not (usual.tokens and even and square) or mixed:
        return {}
    layers = [layer for layer in layers if grids[layer] == usual]
    above = [*blocks.values()] if len(layers) > len(blocks) else [*blocks.values()][1:]
    return dict(zip(layers, [*map(tuple, above), ()], strict=True))

"""Networks with tokens that are not the image's: up to which layer the image's own tokens still count.

In the last block of a transformer with a class token only that token is read, so what lies there at the image's tokens
has no part in the output, however alive it looks.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from excite.propagation.taps import as_found, main_output, plain_modules
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
            hooks.enter_context(module.get_submodule(name).register_forward_hook(partial(keep, name)))
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

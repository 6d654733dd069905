"""NaN and infinity are refused, with the name of the layer that made the first one.

The input, the output and the maps are each checked by their sum, which costs next to nothing. Only where one of them is
not finite the network runs once more, to find the layer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from excite.errors import NumberError
from excite.propagation.fast import is_concrete
from excite.propagation.provenance import tensors_in
from excite.propagation.taps import as_found, plain_network

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Guard", "all_finite"]

WIDER = {torch.float16: "float()", torch.bfloat16: "float()", torch.float32: "double()"}


def all_finite(values: Tensor) -> bool:
    """Whether no value is NaN or infinity: a finite sum is enough.

    Example:
        >>> all_finite(torch.tensor([1.0, -1.0])), all_finite(torch.tensor([1.0, float("nan")]))
        (True, False)
    """
    if not values.is_floating_point() or math.isfinite(float(values.detach().sum())):
        return True
    return bool(torch.isfinite(values).all())


@dataclass(frozen=True)
class Guard:
    """Checks the numbers of one forward pass.

    Attributes:
        module: the network.
        inputs: what it was called with: a tensor, or a tuple of arguments.
    """

    module: nn.Module
    inputs: Any

    def check_output(self, output: Tensor) -> None:
        """Refuse an input or an output that is not finite; a logit of -inf is allowed.

        Raises:
            NumberError: with the first layer that gives NaN or infinity.
        """
        if not is_concrete():
            return
        first = self.inputs[0] if isinstance(self.inputs, tuple) and self.inputs else self.inputs
        if isinstance(first, Tensor) and not all_finite(first):
            raise _in_input(first)
        if not all_finite(output) and bool((output.isnan() | (output == torch.inf)).any()):
            raise self.explained("the answer of the network")

    def check_maps(self, maps: Iterable[Tensor]) -> None:
        """Refuse maps that are not finite.

        Raises:
            NumberError: as above.
        """
        if is_concrete() and not all(map(all_finite, maps)):
            raise self.explained("the map")

    def explained(self, what: str) -> NumberError:
        """The error for a result that is not finite: where that began, and what to do."""
        module = plain_network(self.module)
        for name, weight in module.named_parameters():
            if not all_finite(weight):
                return NumberError(
                    f"{what} would not be finite: the network's weights hold {_kind(weight)} in {name!r}; load or "
                    "train them again"
                )
        begun = _begun(module, self.inputs if isinstance(self.inputs, tuple) else (self.inputs,))
        if begun is None:
            return NumberError(
                f"{what} would not be finite, although all layers are: numbers on the way down leave the range of "
                f"their type; {_remedy(module)}"
            )
        layer, kind, where = begun
        return NumberError(
            f"{what} would not be finite: {where} layer {layer!r} ({type(module.get_submodule(layer)).__name__}) "
            f"numbers first become {kind}; {_remedy(module)}"
        )


def _begun(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[str, str, str] | None:
    """The first layer that gives NaN or infinity, which of them, and whether it arose in or before that layer."""
    begun: list[tuple[str, str, str]] = []

    def look(name: str) -> Any:
        def hook(_child: nn.Module, given: Any, answer: Any) -> None:
            bad = [] if begun else [each for each in tensors_in(answer) if not all_finite(each)]
            if bad:
                sound = all(map(all_finite, tensors_in(given)))
                begun.append((name, _kind(bad[0]), "in" if sound else "before"))

        return hook

    hooks = [child.register_forward_hook(look(name)) for name, child in module.named_modules()]
    try:
        with torch.no_grad(), as_found(list(module.modules())):
            module(*arguments)
    finally:
        for hook in hooks:
            hook.remove()
    return begun[0] if begun else None


def _in_input(values: Tensor) -> NumberError:
    bad = ~torch.isfinite(values)
    pictures = bad.flatten(1).any(1).nonzero()[:, 0].tolist() if values.dim() > 1 else []
    which = f", first in image {pictures[0]} of the batch" if len(values) > 1 and pictures else ""
    return NumberError(
        f"the input of the network holds {_kind(values)} ({int(bad.sum()):,} of {values.numel():,} numbers{which}): "
        "give it finite numbers"
    )


def _kind(values: Tensor) -> str:
    return "infinity" if bool(values.isinf().any()) else "NaN"  # a layer that gives both made NaN of infinities


def _remedy(module: nn.Module) -> str:
    """The remedy for numbers that are too large for their type."""
    types = [weight.dtype for weight in module.parameters() if weight.is_floating_point()]
    wider = WIDER.get(types[0] if types else torch.float32)
    use = f"use a wider type (module.{wider}, and the input likewise), or " if wider else ""
    return f"{use}give smaller numbers"

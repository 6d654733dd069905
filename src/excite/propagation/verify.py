"""A second guard: does the output respond to a layer as the graph of the forward pass says?

Values can leave the graph unseen (docs/limits.md). So the network runs plainly, without the mode, while the layer's
activations change by a step, and the response of its output is compared with what the graph predicts:

    found = s . (y(a + h v) - y(a - h v)) / 2h          expected = s . J v = (J' s) . v

The signal ``s`` is the response, so that nothing cancels. A tiny step ``h`` shows exactly what is missing, but nothing
of what is rounded to integers; a large one shows that too, and bends, which the second difference allows for.
"""

from __future__ import annotations

import copy
import math
import warnings
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from excite.errors import ExciteError, NumberError, UnverifiedWarning, VerificationError
from excite.propagation.gradients import Gradients
from excite.propagation.rules import widest
from excite.propagation.taps import (
    INPUT,
    Layers,
    as_found,
    find_layer,
    heard_in,
    is_edges,
    layer_names,
    main_output,
    plain_modules,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

STEPS = {0.1: 0.1, 1e-3: 0.02, 1e-6: 1e-3}  # relative to the activations; and what may be missing of the response
LEAST = 10  # units of rounding in a step
BENDS = 1.5  # how often the second difference may be missing as well
CLEAR = 0.4  # where more than this may be missing, nothing is verified
TRIES = 3  # directions that must all differ: one of them may lead over a kink
SAME = 1e-4  # of the output: answers that differ by less are the same
HALF = {torch.float16, torch.bfloat16}
MOST_BYTES = 200 * 2**20  # of a network that is copied to double precision


@dataclass(frozen=True)
class Response:
    """How the output of a network responds when the activations of a layer change.

    Attributes:
        expected: the response that passes through the graph.
        found: that of the network itself, in the same unit.
        step: the change, relative to the activations.
        bend: the second difference relative to the first; 0 also where it was not needed.
    """

    expected: float
    found: float
    step: float
    bend: float = 0.0

    @property
    def missing(self) -> float:
        """The share of the response that the graph does not account for."""
        largest = max(abs(self.expected), abs(self.found))
        return min(1.0, abs(self.found - self.expected) / largest) if largest else 0.0

    @property
    def tolerance(self) -> float:
        """The share that may be missing: by rounding, and by the bends of the network's own functions."""
        return STEPS[self.step] + BENDS * self.bend

    @property
    def differs(self) -> bool:
        """Whether more is missing than may be."""
        return self.missing > self.tolerance

    @property
    def clear(self) -> bool:
        """Whether no large share could be missing unnoticed."""
        return self.differs or self.tolerance <= CLEAR


@dataclass(frozen=True)
class Verification:
    """How much of the output's response to each layer the graph accounts for.

    Attributes:
        responses: for each layer, at the step that tells most.
        repeats: the network gives the same answer when it runs again.
        dtype: of the output: double precision, where the network could be copied to it.
    """

    responses: Mapping[str, Response]
    repeats: bool
    dtype: torch.dtype

    @property
    def accounted(self) -> dict[str, float]:
        """The share for each layer."""
        return {layer: 1 - response.missing for layer, response in self.responses.items()}

    @property
    def unclear(self) -> list[str]:
        """The layers at which a large share could be missing unnoticed."""
        return [layer for layer, each in self.responses.items() if not (self.repeats and each.clear)]

    def check(self, *, strict: bool = True) -> None:
        """Refuse a network whose response is not that of the graph.

        Args:
            strict: refuse also what cannot be verified; otherwise that is a warning.

        Raises:
            VerificationError: with the size of what is missing.
        """
        for layer, each in self.responses.items():
            if each.differs and self.repeats:
                raise VerificationError(
                    f"of the response of the output to layer {layer!r}, {each.missing:.0%} does not pass through "
                    f"operations that excite can see (expected {each.expected:.3g}, found {each.found:.3g}): values "
                    "leave the graph (.item(), NumPy, a buffer, a thread, compiled code) or jump (integers, a "
                    "threshold); use torch's operations on the activations, read a layer above, or leave this out with "
                    "verify=False"
                )
        for layer in self.unclear:
            reason = "it is too weak or too abrupt" if self.repeats else "the network gives another answer at each run"
            line = f"the response of the output to layer {layer!r} cannot be verified: {reason}"
            if strict:
                raise VerificationError(f"{line}; try another image, or leave this out with verify=False")
            warnings.warn(f"{line}; leave this out with wrap(..., verify=False)", UnverifiedWarning, stacklevel=3)


def verify(module: nn.Module, inputs: Tensor | tuple[Any, ...], layers: Layers, *, exact: bool = True) -> Verification:
    """Compare the response of a network's output to its layers with what passes through the graph.

    Takes the time of about six runs of the network for one layer. The network is left as it was found.

    Args:
        module: any network in plain PyTorch.
        inputs: what it is called with: a tensor, or a tuple of arguments.
        layers: as in `ExcitationPass`.
        exact: use a copy in double precision, where the network is smaller than 200 MB and runs in that type.

    Returns:
        the shares; only its `check` refuses.

    Example:
        >>> net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).eval()
        >>> found = verify(net, torch.ones(1, 1, 4, 4), ["1"])
        >>> round(found.accounted["1"], 6), found.dtype
        (1.0, torch.float64)
        >>> found.check()
    """
    module, named = plain_modules(module)[0], layer_names(module, layers)
    # Weights inside of fused attention cannot be changed in a plain run: the input is, which all above them depends on.
    places = list(dict.fromkeys(INPUT if is_edges(each) else each for each in named))
    arguments = inputs if isinstance(inputs, tuple) else (inputs,)
    state = [*module.parameters(), *module.buffers()]
    exact = exact or any(each.is_inference() or each.dtype in HALF for each in state)  # autograd refuses the former
    if exact and sum(each.nbytes for each in state) <= MOST_BYTES:
        with suppress(ExciteError, RuntimeError, TypeError, ValueError), torch.inference_mode(mode=False):
            doubled = tree_map_only(Tensor, lambda each: each.double() if each.is_floating_point() else each, arguments)
            return _Network(copy.deepcopy(module).double(), doubled, places).verified()
    return _Network(module, arguments, places).verified()  # also where it cannot be copied or run in that type


class _Network:
    """A network with the graph of its forward pass, which can also be run plainly, with changed activations."""

    def __init__(self, module: nn.Module, inputs: tuple[Any, ...], layers: Sequence[str]) -> None:
        self._modules, self._inputs, self._layers = plain_modules(module), inputs, layers
        places = {layer: find_layer(module, layer) for layer in layers if layer != INPUT}
        with ExitStack() as hooks, _same_draws():
            calls = {layer: hooks.enter_context(_hooked(child)) for layer, (child, _) in places.items()}
            self._graph = Gradients(module, tree_map_only(Tensor, Tensor.clone, inputs), layers)
        self._places = {layer: (child, calls[layer][call]) for layer, (child, call) in places.items()}

    def verified(self) -> Verification:
        """The responses to all layers."""
        responses = {layer: self._response(layer) for layer in self._layers}
        output = _wide(self._graph.output).nan_to_num(0.0, 0.0, 0.0)
        noise = self._change()  # and what the network keeps for itself is from this run, without a shift
        return Verification(responses, bool(noise.norm() <= SAME * output.norm()), self._graph.output.dtype)

    def _response(self, layer: str) -> Response:
        """The response at the step with the least bend; where it differs in all directions, their median."""
        activation, generator = self._graph.activations[layer], torch.Generator().manual_seed(0)
        rounding = max(torch.finfo(each.dtype).eps for each in (activation, self._graph.output))
        tried = []
        for _ in range(TRIES):
            direction = _direction(activation, generator)
            found = [self._along(layer, direction, step) for step in STEPS if step > LEAST * rounding]
            best = min([each for each in found if each.differs] or found, key=lambda each: (each.bend, each.step))
            if not best.differs:
                return best
            tried.append(best)
        return sorted(tried, key=lambda each: each.missing)[TRIES // 2]

    def _along(self, layer: str, direction: Tensor, step: float) -> Response:
        """The response to a step in a direction; where it differs, to the opposite step as well."""
        ahead = self._change(layer, step * direction)
        signal = ahead / (float(ahead.abs().max()) or 1.0)
        try:
            gradient = self._graph.down(signal.to(self._graph.output.dtype), layers=[layer])[layer]
        except (NumberError, RuntimeError):  # such as the root of 0, which has a value but no gradient
            return Response(0.0, 0.0, step, math.inf)
        expected = float((_wide(gradient) * _wide(direction)).sum())
        response = Response(expected, float((signal * ahead).sum()) / step, step)
        if response.differs:
            behind = self._change(layer, -step * direction)
            first, second = ahead - behind, ahead + behind
            found = float((signal * first).sum()) / (2 * step)
            response = Response(expected, found, step, float(second.norm() / first.norm()) if found else math.inf)
        return response

    def _change(self, layer: str = "", shift: Tensor | None = None) -> Tensor:
        """How the output changes in a plain run with shifted activations of a layer, in double precision."""
        inputs = list(tree_map_only(Tensor, Tensor.clone, self._inputs))  # a network may overwrite its input
        with ExitStack() as hooks, torch.inference_mode(mode=False), torch.no_grad(), _same_draws():
            hooks.enter_context(as_found(self._modules))
            if layer in self._places:
                hooks.enter_context(_hooked(*self._places[layer], shift))
            elif shift is not None:
                inputs[0] = inputs[0] + shift
            output = _wide(main_output(self._modules[0](*inputs)))
        return (output - self._graph.output).nan_to_num(0.0, 0.0, 0.0)  # a logit of -inf stays what it is


@contextmanager
def _hooked(module: nn.Module, wanted: int | None = None, shift: Tensor | None = None) -> Iterator[list[int]]:
    """The numbers of a module's calls in this thread; the answer of the wanted one is shifted."""
    calls: list[int] = []

    def hook(_module: nn.Module, _arguments: Any, answer: Any) -> Any:
        calls.append(len(calls))
        return answer + shift if calls[-1] == wanted else None

    handle = module.register_forward_hook(partial(heard_in, get_ident(), hook))
    try:
        yield calls
    finally:
        handle.remove()


def _same_draws() -> AbstractContextManager[None]:
    """Torch's generators stay where they are, so that each run draws the same random numbers (dropout)."""
    cuda = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch has no type for it
    return torch.random.fork_rng(range(torch.cuda.device_count()) if cuda else [])


def _wide(values: Tensor) -> Tensor:
    return values.to(widest(values))


def _direction(activation: Tensor, generator: torch.Generator) -> Tensor:
    """The activation times random factors, where functions bend least; one a channel: equal units stay equal."""
    channels = activation.shape[1] if activation.dim() > 1 else 1
    shape = [1, channels, *[1] * (activation.dim() - 2)] if channels > 1 else list(activation.shape)
    return activation * (torch.rand(shape, generator=generator) + 0.5).to(activation)

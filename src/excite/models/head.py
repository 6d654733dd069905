"""Where a classifier stops knowing places: its head, found in one dry run at the size it was trained on.

Each call of the network either keeps places (a convolution of a map gives a map) or loses them (pooling over the whole
map, flattening it). Calls from which a map is computed again later are the *body*, also when they lose places on their
way: the pooling inside a squeeze-and-excite block is one, and stays over the whole image. All others are the *head*.
The calls of the head that read something of the body are where the head begins.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from excite.errors import ModelError
from excite.propagation.mode import WRITING, operation_name, running_module
from excite.propagation.provenance import tensors_in
from excite.propagation.taps import as_found, main_output

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["DRY_BATCH", "Counting", "Head", "HeadCall", "Key", "Recording", "Step", "Window", "head_of", "step_of"]

DRY_BATCH = 2  # not 1: a size of 1 would not tell images from anything else in the shapes that are noted
Key = tuple[str, str, int]  # the module that runs, the operation it calls, and for which time
_STEP = "_excite_step"


@dataclass(frozen=True)
class Window:
    """What the head reads of a map: its size at the trained size, the first of its two dimensions, and the step."""

    height: int
    width: int
    dim: int
    step: int = 1

    @classmethod
    def of(cls, shape: tuple[int, ...], size: tuple[int, ...]) -> Window:
        """A whole map: its sides lie at its end, or before its channels, there where their ratio is the image's."""

        def misfit(dim: int) -> float:
            return abs(shape[dim] * size[1] / (shape[dim + 1] * size[0]) - 1)

        dim = min((len(shape) - 2, 1), key=misfit)
        return cls(shape[dim], shape[dim + 1], dim)


@dataclass(frozen=True)
class HeadCall:
    """A call of the head as it was made in the dry run.

    Attributes:
        reads: for each tensor among the arguments: a window, "whole" for something of the body without places, or None
            for what is no concern (a weight, or something of the head).
        args: the arguments, without the tensors.
        kwargs: those with a name.
        shape: the shape of the answer; None where it was no single tensor.
    """

    reads: tuple[Window | str | None, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    shape: tuple[int, ...] | None


@dataclass(frozen=True)
class Head:
    """The calls of a head; none where the network answers for each place already."""

    calls: Mapping[Key, HeadCall]
    operations: frozenset[str]


@dataclass(eq=False)
class Step:
    """A call of the dry run that gave activations."""

    key: Key
    inputs: list[tuple[Step | None, tuple[int, ...]]]  # who made each tensor it read, and the tensor's shape
    call: HeadCall
    has_places: bool
    is_body: bool = False


class Counting(TorchFunctionMode):
    """Knows each call by the module that makes it: what a module calls does not depend on the size of the image.

    Positions in the whole course of calls do: "same" padding, for one, is called only for some sizes.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self._names: dict[int, str] = {id(child): name for name, child in network.named_modules()}
        self._turns: Counter[tuple[str, str]] = Counter()

    def key(self, operation: str) -> Key:
        """The key of a call that is made just now."""
        module = running_module(self._names)
        self._turns[module, operation] += 1
        return module, operation, self._turns[module, operation]


def head_of(network: nn.Module, size: tuple[int, int], channels: int) -> Head:
    """Run a network once at the size it was trained on, and tell its head."""
    state = next((tensor for tensor in (*network.parameters(), *network.buffers()) if tensor.is_floating_point()), None)
    options = {} if state is None else {"device": state.device, "dtype": state.dtype}
    pictures = torch.zeros(DRY_BATCH, channels, *size, **options)  # type: ignore[call-overload]
    with as_found(list(network.modules())), torch.no_grad(), Recording(network, pictures) as recording:
        output = main_output(network(pictures))
    last = step_of(output)
    if last is None:
        raise ModelError("the network's output does not depend on the image, as far as its calls to torch tell")
    _find_body(recording.steps)
    if last.is_body:
        if output.dim() != 4:
            raise ModelError(_wrong_output(output))
        return Head({}, frozenset())
    if output.dim() < 2 or output.shape[0] != DRY_BATCH or output.numel() != output.shape[:2].numel():
        raise ModelError(_wrong_output(output))
    heads = [step for step in recording.steps if not step.is_body]
    return Head(_calls(heads, size), frozenset(step.key[1] for step in heads))


def step_of(tensor: Tensor) -> Step | None:
    """The call that made an activation, while a network is recorded."""
    return getattr(tensor, _STEP, None)


def _wrong_output(output: Tensor) -> str:
    return (
        f"the network answers {DRY_BATCH} images with a tensor of shape {tuple(output.shape)}: only one that gives "
        "[N, classes] or [N, classes, h, w] can be used fully convolutionally"
    )


class Recording(Counting):
    """Notes every call that gives activations."""

    def __init__(self, network: nn.Module, pictures: Tensor) -> None:
        super().__init__(network)
        start = Step(("", "", 0), [], HeadCall((), (), {}, None), has_places=True)
        self.steps = [start]
        setattr(pictures, _STEP, start)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        key = self.key(operation_name(func))
        inputs = [(step_of(tensor), tuple(tensor.shape)) for tensor in tensors_in((args, kwargs))]
        result = func(*args, **kwargs)
        written = args[0] if func.__name__ in WRITING else result
        answers = list(tensors_in(written))
        if answers and any(maker is not None for maker, _ in inputs):
            shape = tuple(result.shape) if isinstance(result, Tensor) else None
            call = HeadCall((), _without_tensors(args), _without_tensors(kwargs), shape)
            kept = not key[1].startswith("adaptive") and any(_keeps_places(inputs, answer) for answer in answers)
            step = Step(key, inputs, call, kept)
            self.steps.append(step)
            for answer in answers:
                setattr(answer, _STEP, step)
        return result


def _keeps_places(inputs: list[tuple[Step | None, tuple[int, ...]]], answer: Tensor) -> bool:
    """Whether an answer still is a map, where a map was read.

    A map has four dimensions (or more, while channels are shuffled), or is a single channel of one. It is none any
    more when one of its sides was summed up.
    """
    maps = [shape for maker, shape in inputs if maker is not None and maker.has_places]
    if answer.dim() == 3:
        return any(answer.shape[-2:] == shape[-2:] for shape in maps)
    narrowest = max((min(shape[-2:]) for shape in maps), default=0)
    return answer.dim() > 3 and bool(maps) and (min(answer.shape[-2:]) > 1 or narrowest == 1 < max(answer.shape[-2:]))


def _without_tensors(value: Any) -> Any:
    if isinstance(value, Tensor):
        return None
    if isinstance(value, (tuple, list)):
        return tuple(_without_tensors(item) for item in value)
    if isinstance(value, dict):
        return {key: _without_tensors(item) for key, item in value.items()}
    return value


def _find_body(steps: list[Step]) -> None:
    """Mark whatever a map is computed from."""
    for step in reversed(steps):
        step.is_body |= step.has_places
        if step.is_body:
            for maker, _ in step.inputs:
                if maker is not None:
                    maker.is_body = True


def _calls(heads: list[Step], size: tuple[int, int]) -> dict[Key, HeadCall]:
    """The calls of a head, with what each reads of the body."""
    read = [shape for step in heads for maker, shape in step.inputs if maker is not None and maker.has_places]
    least = min((window.height for window in (Window.of(shape, size) for shape in read)), default=1)
    calls = {}
    for step in heads:
        reads = tuple(_read(maker, shape, size, least) for maker, shape in step.inputs)
        calls[step.key] = HeadCall(reads, step.call.args, step.call.kwargs, step.call.shape)
    return calls


def _read(maker: Step | None, shape: tuple[int, ...], size: tuple[int, int], least: int) -> Window | str | None:
    if maker is None or not maker.is_body:
        return None
    if not maker.has_places:
        return "whole"
    window = Window.of(shape, size)
    # Where the head reads maps of several strides, one step on the coarsest is several on the others.
    return Window(window.height, window.width, window.dim, max(window.height // least, 1))

"""The head of a classifier: the calls after the last spatial map, found in one dry run at the trained size.

Each call of the network either keeps the spatial positions (a convolution) or loses them (global pooling, flattening).
Calls from which a map is computed later are the *body*, also where they lose positions on the way, as the pooling in a
squeeze-and-excite block does; all others are the *head*. It begins with the calls that read from the body.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from excite.errors import ModelError
from excite.propagation.graph import WRITING, operation_name, running_module
from excite.propagation.provenance import tensors_in
from excite.propagation.taps import as_found, main_output

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DRY_BATCH = 2  # not 1, so that the batch can be told from other dimensions in recorded shapes
Key = tuple[str, str, int]  # the running module, the operation, and the number of its call there
_STEP = "_excite_step"


@dataclass(frozen=True)
class Window:
    """The part of a map that the head reads: its size at the trained size, its first dimension, the step."""

    height: int
    width: int
    dim: int
    step: int = 1

    @classmethod
    def of(cls, shape: tuple[int, ...], size: tuple[int, ...]) -> Window:
        """A whole map: its sides are the last two dimensions or, channels last, those with the image's aspect ratio."""

        def misfit(dim: int) -> float:
            return abs(shape[dim] * size[1] / (shape[dim + 1] * size[0]) - 1)

        dim = min((len(shape) - 2, 1), key=misfit)
        return cls(shape[dim], shape[dim + 1], dim)


@dataclass(frozen=True)
class HeadCall:
    """A call of the head in the dry run.

    Attributes:
        reads: for each tensor among the arguments: a window of a map, "whole" for a tensor of the body without
            positions, or None for weights and tensors of the head.
        args: the arguments, without the tensors.
        kwargs: the keyword arguments, without the tensors.
        shape: the shape of the result; None where it was no single tensor.
    """

    reads: tuple[Window | str | None, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    shape: tuple[int, ...] | None


@dataclass(frozen=True)
class Head:
    """The calls of a head; none where the network is fully convolutional already."""

    calls: Mapping[Key, HeadCall]
    operations: frozenset[str]


@dataclass(eq=False)
class Step:
    """A call of the dry run that computed activations."""

    key: Key
    inputs: list[tuple[Step | None, tuple[int, ...]]]  # of each input tensor the step that computed it, and its shape
    call: HeadCall
    is_spatial: bool
    is_body: bool = False


class Counting(TorchFunctionMode):
    """Numbers the calls within each module, which do not depend on the size of the image.

    A number over the whole network would: "same" padding, for one, is called only for some sizes.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self._names: dict[int, str] = {id(child): name for name, child in network.named_modules()}
        self._turns: Counter[tuple[str, str]] = Counter()

    def key(self, operation: str) -> Key:
        """The key of the current call."""
        module = running_module(self._names)
        self._turns[module, operation] += 1
        return module, operation, self._turns[module, operation]


def head_of(network: nn.Module, size: tuple[int, int], channels: int) -> Head:
    """The head of a network, from one run at the size it was trained on."""
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
    """The call that computed an activation, while a network is recorded."""
    return getattr(tensor, _STEP, None)


def _wrong_output(output: Tensor) -> str:
    return (
        f"the network answers {DRY_BATCH} images with a tensor of shape {tuple(output.shape)}: only one that gives "
        "[N, classes] or [N, classes, h, w] can be used fully convolutionally"
    )


class Recording(Counting):
    """Records every call that computes activations."""

    def __init__(self, network: nn.Module, pictures: Tensor) -> None:
        super().__init__(network)
        start = Step(("", "", 0), [], HeadCall((), (), {}, None), is_spatial=True)
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
            kept = not key[1].startswith("adaptive") and any(_keeps_positions(inputs, answer) for answer in answers)
            step = Step(key, inputs, call, kept)
            self.steps.append(step)
            for answer in answers:
                setattr(answer, _STEP, step)
        return result


def _keeps_positions(inputs: list[tuple[Step | None, tuple[int, ...]]], answer: Tensor) -> bool:
    """Whether a result computed from maps is a map: of at least four dimensions or a single channel, no side summed."""
    maps = [shape for maker, shape in inputs if maker is not None and maker.is_spatial]
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
    """Mark the steps that a map is computed from."""
    for step in reversed(steps):
        step.is_body |= step.is_spatial
        if step.is_body:
            for maker, _ in step.inputs:
                if maker is not None:
                    maker.is_body = True


def _calls(heads: list[Step], size: tuple[int, int]) -> dict[Key, HeadCall]:
    """The calls of a head, with what each reads from the body."""
    read = [shape for step in heads for maker, shape in step.inputs if maker is not None and maker.is_spatial]
    least = min((window.height for window in (Window.of(shape, size) for shape in read)), default=1)
    calls = {}
    for step in heads:
        reads = tuple(_read(maker, shape, size, least) for maker, shape in step.inputs)
        calls[step.key] = HeadCall(reads, step.call.args, step.call.kwargs, step.call.shape)
    return calls


def _read(maker: Step | None, shape: tuple[int, ...], size: tuple[int, int], least: int) -> Window | str | None:
    if maker is None or not maker.is_body:
        return None
    if not maker.is_spatial:
        return "whole"
    window = Window.of(shape, size)
    # Where the head reads maps of several strides, one step on the coarsest is several on the others.
    return Window(window.height, window.width, window.dim, max(window.height // least, 1))

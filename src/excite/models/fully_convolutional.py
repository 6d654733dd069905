"""Any classifier as a fully convolutional network: an image of any shape gives a map of logits.

As the paper turns dense layers into convolutions, the *head*, which reads a map of one fixed size, slides over a larger
map: its windows are put side by side in the batch, and the network's own code runs on them. Calls from which a map is
computed later, by a dry run at the trained size, are the *body*, which runs on the whole image as it is; also where
they lose positions on the way, as the pooling in a squeeze-and-excite block does.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from threading import get_ident
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from excite.errors import ImageError, ModelError
from excite.propagation.graph import WRITING, operation_name, running_module
from excite.propagation.provenance import tensors_in
from excite.propagation.taps import as_found, heard_in, main_output, plain_modules

DRY_BATCH = 2  # not 1, so that the batch can be told from other dimensions in recorded shapes
Key = tuple[str, str, int]  # the running module, the operation, and the number of its call there
_STEP, _OF_HEAD = "_excite_step", "_excite_of_head"  # attributes of activations
_RESHAPING = frozenset({"view", "reshape", "expand"})
_REMEDY = "this network can be used only as it is, at the size it was trained on"


@dataclass(frozen=True)
class Window:
    """The part of a map that the head reads: its size at the trained size, its first dimension, the step."""

    height: int
    width: int
    dim: int
    step: int = 1

    @classmethod
    def of(cls, shape: tuple[int, ...], size: tuple[int, ...]) -> "Window":
        """A whole map: its sides are the last two dimensions or, channels last, those with the image's aspect ratio."""

        def misfit(dim: int) -> float:
            return abs(shape[dim] * size[1] / (shape[dim + 1] * size[0]) - 1)

        dim = min((len(shape) - 2, 1), key=misfit)
        return cls(shape[dim], shape[dim + 1], dim)


@dataclass(eq=False)
class Step:
    """A call of the dry run that computed activations."""

    key: Key
    is_spatial: bool
    inputs: tuple[tuple["Step | None", tuple[int, ...]], ...] = ()  # the step and shape of each tensor it is given
    constants: tuple[Any, ...] = ()  # the other arguments, flattened
    shape: tuple[int, ...] | None = None
    is_body: bool = False
    reads: tuple[Window | str | None, ...] = ()  # of each input: a window, "whole" (of the body, no positions), or None


class Counting(TorchFunctionMode):
    """Numbers the calls within each module; over the whole network they may depend on the size ("same" padding)."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self._names: dict[int, str] = {id(child): name for name, child in network.named_modules()}
        self._turns: Counter[tuple[str, str]] = Counter()

    def key(self, operation: str) -> Key:
        """The key of the current call."""
        module = running_module(self._names)
        self._turns[module, operation] += 1
        return module, operation, self._turns[module, operation]


def step_of(tensor: Tensor) -> Step | None:
    """The call that computed an activation, while a network is recorded."""
    return getattr(tensor, _STEP, None)


class Recording(Counting):
    """Records every call that computes activations."""

    def __init__(self, network: nn.Module, pictures: Tensor) -> None:
        super().__init__(network)
        self.steps = [Step(("", "", 0), is_spatial=True)]
        setattr(pictures, _STEP, self.steps[0])

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        key = self.key(operation_name(func))
        inputs = tuple((step_of(tensor), tuple(tensor.shape)) for tensor in tensors_in((args, kwargs)))
        result = func(*args, **kwargs)
        answers = tensors_in(args[0] if func.__name__ in WRITING else result)
        if answers and any(maker is not None for maker, _ in inputs):
            maps = [shape for maker, shape in inputs if maker is not None and maker.is_spatial]
            kept = not key[1].startswith("adaptive") and any(_keeps_positions(maps, answer) for answer in answers)
            constants = tuple(None if isinstance(leaf, Tensor) else leaf for leaf in tree_leaves((args, kwargs)))
            shape = tuple(result.shape) if isinstance(result, Tensor) else None
            self.steps.append(Step(key, kept, inputs, constants, shape))
            for answer in answers:
                setattr(answer, _STEP, self.steps[-1])
        return result


def _keeps_positions(maps: list[tuple[int, ...]], answer: Tensor) -> bool:
    """Whether a result computed from maps is a map: of at least four dimensions or a single channel, no side summed."""
    if answer.dim() == 3:
        return any(answer.shape[-2:] == shape[-2:] for shape in maps)
    narrowest = max((min(shape[-2:]) for shape in maps), default=0)
    return answer.dim() > 3 and bool(maps) and (min(answer.shape[-2:]) > 1 or narrowest == 1 < max(answer.shape[-2:]))


def head_of(network: nn.Module, size: tuple[int, int], channels: int) -> dict[Key, Step]:
    """The calls of a network's head; none where it is fully convolutional already."""
    state = next((tensor for tensor in (*network.parameters(), *network.buffers()) if tensor.is_floating_point()), None)
    options = {} if state is None else {"device": state.device, "dtype": state.dtype}
    pictures = torch.zeros(DRY_BATCH, channels, *size, **options)  # type: ignore[call-overload]
    with as_found(list(network.modules())), torch.no_grad(), Recording(network, pictures) as recording:
        output = main_output(network(pictures))
    last = step_of(output)
    if last is None:
        raise ModelError("the network's output does not depend on the image, as far as its calls to torch tell")
    for step in reversed(recording.steps):
        step.is_body |= step.is_spatial
        for maker, _ in step.inputs if step.is_body else ():
            if maker is not None:
                maker.is_body = True
    is_vector = output.dim() >= 2 and output.shape[0] == DRY_BATCH and output.numel() == output.shape[:2].numel()
    if not (output.dim() == 4 if last.is_body else is_vector):
        raise ModelError(
            f"the network answers {DRY_BATCH} images with a tensor of shape {tuple(output.shape)}: only one that gives "
            "[N, classes] or [N, classes, h, w] can be used fully convolutionally"
        )
    heads = [] if last.is_body else [step for step in recording.steps if not step.is_body]
    read = [shape for step in heads for maker, shape in step.inputs if maker is not None and maker.is_spatial]
    least = min((Window.of(shape, size).height for shape in read), default=1)
    for step in heads:
        step.reads = tuple(_read(maker, shape, size, least) for maker, shape in step.inputs)
        step.inputs = ()  # else the steps of the body would be kept
    return {step.key: step for step in heads}


def _read(maker: Step | None, shape: tuple[int, ...], size: tuple[int, int], least: int) -> Window | str | None:
    if maker is None or not maker.is_body:
        return None
    if not maker.is_spatial:
        return "whole"
    window = Window.of(shape, size)
    # Where the head reads maps of several strides, one step on the coarsest is several on the others.
    return replace(window, step=max(window.height // least, 1))


class Sliding(Counting):
    """While active, the calls of the head run on windows, side by side in the batch."""

    def __init__(self, network: nn.Module, head: Mapping[Key, Step]) -> None:
        super().__init__(network)
        self.network = network
        self.head = head
        self.operations = {operation for _, operation, _ in head}
        self.grid: tuple[int, int, int] | None = None  # images, and windows down and across each
        self.is_aside = False  # during calls that are not the network's

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = operation_name(func)
        tensors = tensors_in((args, kwargs))
        call = self.head.get(self.key(name)) if name in self.operations and not self.is_aside else None
        if call is None:
            result = func(*args, **kwargs)
            return _marked(result) if any(hasattr(tensor, _OF_HEAD) for tensor in tensors) else result
        if len(tensors) != len(call.reads):
            raise ModelError(f"{_place(call.key)} reads other things for this size of the image: {_REMEDY}")
        windows = [self._read(tensor, read, call.key) for tensor, read in zip(tensors, call.reads, strict=True)]
        return _marked(self._run(func, call, (args, kwargs), windows))

    def _run(self, func: Callable[..., Any], call: Step, given: Any, windows: list[Tensor]) -> Any:
        """Run a call of the head on windows, with the numbers of the dry run where there are several."""
        leaves, tree = tree_flatten(given)
        remaining = iter(windows)
        try:
            if self._count > 1 and call.key[1] in _RESHAPING and call.shape is not None:
                if call.shape[0] % DRY_BATCH:
                    raise ValueError(f"a shape of {call.shape} does not keep the images apart")  # noqa: TRY301
                pictures = self.grid[0] if self.grid else DRY_BATCH
                shape = (call.shape[0] // DRY_BATCH * pictures * self._count, *call.shape[1:])
                return windows[0].expand(shape) if call.key[1] == "expand" else windows[0].reshape(shape)
            for place, (leaf, recorded) in enumerate(zip(leaves, call.constants, strict=self._count > 1)):
                if isinstance(leaf, Tensor):
                    leaves[place] = next(remaining)
                elif self._count > 1 and isinstance(recorded, int | float | torch.Size) and not isinstance(leaf, bool):
                    leaves[place] = recorded
            args, kwargs = tree_unflatten(leaves, tree)
            return func(*args, **kwargs)
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            if self._count == 1:
                raise
            raise ModelError(f"{_place(call.key)} cannot be slid over the image ({error}): {_REMEDY}") from error

    @property
    def _count(self) -> int:  # of windows in each image
        return 1 if self.grid is None else self.grid[1] * self.grid[2]

    def _read(self, tensor: Tensor, read: Window | str | None, key: Key) -> Tensor:
        if read is None:
            return tensor
        if isinstance(read, Window):
            return self._slide(tensor, read, key)
        if self.grid is None:
            raise ModelError(f"{_place(key)} reads something without places before any map: {_REMEDY}")
        return tensor if self._count == 1 else tensor.repeat_interleave(self._count, 0)

    def _slide(self, tensor: Tensor, window: Window, key: Key) -> Tensor:
        """All windows of a map [N, ..., H, W, ...], as a batch."""
        dim, step = window.dim, window.step
        down, across = tensor.shape[dim] - window.height, tensor.shape[dim + 1] - window.width
        grid = (tensor.shape[0], down // step + 1, across // step + 1)
        if (self.grid or grid) != grid:
            raise ModelError(f"{_place(key)} reads maps that do not fit each other at this size: {_REMEDY}")
        self.grid = grid
        if not down and not across:
            return tensor
        views = tensor.unfold(dim, window.height, step).unfold(dim + 1, window.width, step)
        return views.movedim((dim, dim + 1, -2, -1), (1, 2, dim + 2, dim + 3)).flatten(0, 2)

    def as_map(self, output: Tensor) -> Tensor:
        """The output of the head for each window, [N, classes, h, w]."""
        if self.grid is None or not hasattr(output, _OF_HEAD):
            raise ModelError(f"the network takes another course for this size of the image: {_REMEDY}")
        return output.reshape(*self.grid, -1).permute(0, 3, 1, 2).contiguous()

    @contextmanager
    def showing_maps(self) -> Iterator[None]:
        """Forward hooks on layers of the head see a map, not a batch of windows: two hooks enclose the present ones."""
        shapes: list[torch.Size | None] = []

        def show(_module: nn.Module, _arguments: Any, answer: Any) -> Any:
            slid = self._count > 1 and isinstance(answer, Tensor) and hasattr(answer, _OF_HEAD)
            shapes.append(answer.shape if slid else None)
            return self._aside(lambda: self._shown(answer)) if slid else answer

        def hide(_module: nn.Module, _arguments: Any, answer: Any) -> Any:
            shape = shapes.pop()
            if shape is None:
                return None
            return self._aside(lambda: (answer.permute(0, 2, 3, 1) if answer.dim() == 4 else answer).reshape(shape))

        heard = [child for child in self.network.modules() if child._forward_hooks and child is not self.network]  # noqa: SLF001
        with ExitStack() as hooks:
            for child in heard:
                hooks.enter_context(child.register_forward_hook(partial(heard_in, get_ident(), show), prepend=True))
                hooks.enter_context(child.register_forward_hook(partial(heard_in, get_ident(), hide)))
            yield

    def _shown(self, answer: Tensor) -> Tensor:
        single = answer.numel() == answer.shape[0] * max(answer.shape[1:], default=1)
        return self.as_map(answer) if single else answer.reshape(*(self.grid or ()), *answer.shape[1:])

    def _aside(self, call: Callable[[], Tensor]) -> Tensor:
        """A call that is not the network's, as part of the head."""
        self.is_aside = True
        try:
            return cast("Tensor", _marked(call()))
        finally:
            self.is_aside = False


def _place(key: Key) -> str:
    return f"{key[1]!r}, called in {key[0]!r}," if key[0] else f"{key[1]!r}, called by the model itself,"


def _marked(result: Any) -> Any:
    for tensor in tensors_in(result):
        setattr(tensor, _OF_HEAD, True)
    return result


def fully_convolutional(module: nn.Module, size: int | tuple[int, int] = 224, *, channels: int = 3) -> nn.Module:
    """The same classifier, for images of any shape: it computes a map of logits [N, classes, h, w].

    At the trained size (one number, or height and width) that map is 1 x 1 and equals the network's own output exactly.
    On a larger image there is one value for each position of the trained window on the last map. Pooling *inside* the
    network, as in squeeze-and-excite blocks, is over the whole image. The module is not changed and shares its weights,
    layers and their names with the new one. A ModelError says where a network cannot be used so.
    """
    network = plain_modules(module)[0]
    network = network.network if isinstance(network, FullyConvolutional) else network
    sides = (size, size) if isinstance(size, int) else size
    return FullyConvolutional(network, sides, head_of(network, sides, channels))


class FullyConvolutional(nn.Module):
    """A network whose head slides over the image; it shares the network's dictionaries of children and tensors."""

    network: nn.Module

    def __init__(self, network: nn.Module, size: tuple[int, int], head: Mapping[Key, Step]) -> None:
        super().__init__()
        self.size = size
        self.head = head
        self.training = network.training
        vars(self).update(network=network)  # as a child it would change the layers' names
        for shared in ("_modules", "_parameters", "_buffers", "_non_persistent_buffers_set"):
            vars(self)[shared] = vars(network)[shared]

    def train(self, mode: bool = True) -> "FullyConvolutional":  # noqa: FBT001, FBT002 -- as torch has it
        """Set the mode of both."""
        self.network.train(mode)
        self.training = mode
        return self

    def forward(self, pictures: Tensor) -> Tensor:
        """Logits [N, classes, h, w] of images [N, channels, H, W]."""
        if pictures.dim() != 4:
            raise ModelError(f"the images have shape {tuple(pictures.shape)}: give a batch [N, channels, H, W]")
        height, width = pictures.shape[-2:]
        if height < self.size[0] or width < self.size[1]:
            raise ImageError(
                f"the image is {width} x {height} pixels, smaller than what the network was trained on: make it at "
                f"least {self.size[1]} x {self.size[0]}"
            )
        with Sliding(self.network, self.head) as sliding, sliding.showing_maps():
            output = main_output(self.network(pictures))
        return sliding.as_map(output) if self.head else output

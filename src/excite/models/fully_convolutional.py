"""Any classifier as a fully convolutional network: an image of any shape gives a map of logits.

The paper turns dense layers into convolutions and global pooling into pooling over the trained window. Equivalently,
the head of the classifier, which reads a map of one fixed size, slides over a larger map: its windows are put side by
side in the batch, and the network's own code runs on them. The body runs on the whole image as it is.
"""

from __future__ import annotations

from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from excite.errors import ImageError, ModelError
from excite.models.head import DRY_BATCH, Counting, Head, HeadCall, Key, Window, head_of
from excite.propagation.graph import operation_name
from excite.propagation.provenance import tensors_in
from excite.propagation.taps import main_output, plain_network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch


_RESHAPING = frozenset({"view", "reshape", "expand"})
_OF_HEAD = "_excite_of_head"
_REMEDY = "this network can be used only as it is, at the size it was trained on"


class Sliding(Counting):
    """While active, the calls of the head run on windows, side by side in the batch."""

    def __init__(self, network: nn.Module, head: Head) -> None:
        super().__init__(network)
        self.network = network
        self.head = head
        self.grid: tuple[int, int, int] | None = None  # images, and windows down and across each
        self._aside = False  # during calls that are not the network's
        self._shown: list[torch.Size | None] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = operation_name(func)
        if self._aside:
            return func(*args, **kwargs)
        key = self.key(name) if name in self.head.operations else None
        call = self.head.calls.get(key) if key else None
        if key is None or call is None:
            of_head = any(hasattr(tensor, _OF_HEAD) for tensor in tensors_in((args, kwargs)))
            return _marked(func(*args, **kwargs)) if of_head else func(*args, **kwargs)
        windows = self._windows(call, args, kwargs, key)
        return _marked(self._run(func, call, (args, kwargs), windows, key))

    def _run(self, func: Callable[..., Any], call: HeadCall, given: Any, windows: list[Tensor], key: Key) -> Any:
        """Run a call of the head on windows, with the sizes of the dry run."""
        remaining = iter(windows)
        if self._count == 1:
            args, kwargs = _filled(given, remaining)
            return func(*args, **kwargs)
        try:
            if key[1] in _RESHAPING and call.shape is not None:
                shape = self._scaled(call.shape)
                return windows[0].expand(shape) if key[1] == "expand" else windows[0].reshape(shape)
            args, kwargs = _filled(given, remaining, (call.args, call.kwargs))
            return func(*args, **kwargs)
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            raise ModelError(f"{_place(key)} cannot be slid over the image ({error}): {_REMEDY}") from error

    @property
    def _count(self) -> int:
        """The number of windows in each image."""
        return 1 if self.grid is None else self.grid[1] * self.grid[2]

    def _scaled(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape of the dry run for the current number of windows."""
        pictures = self.grid[0] if self.grid else DRY_BATCH
        if shape[0] % DRY_BATCH:
            raise ValueError(f"a shape of {shape} does not keep the images apart")
        return (shape[0] // DRY_BATCH * pictures * self._count, *shape[1:])

    def _windows(self, call: HeadCall, args: Any, kwargs: Any, key: Key) -> list[Tensor]:
        """The tensors of a call, those of the body cut into windows."""
        tensors = list(tensors_in((args, kwargs)))
        if len(tensors) != len(call.reads):
            raise ModelError(f"{_place(key)} reads other things for this size of the image: {_REMEDY}")
        return [self._read(tensor, read, key) for tensor, read in zip(tensors, call.reads, strict=True)]

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
        thread = get_ident()

        def show(_module: nn.Module, _arguments: Any, answer: Any) -> Any:
            return self._show(answer) if get_ident() == thread else None

        def hide(_module: nn.Module, _arguments: Any, answer: Any) -> Any:
            return self._hide(answer) if get_ident() == thread else None

        heard = [child for child in self.network.modules() if child._forward_hooks and child is not self.network]  # noqa: SLF001
        handles = [child.register_forward_hook(show, prepend=True) for child in heard]
        handles += [child.register_forward_hook(hide) for child in heard]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _show(self, answer: Any) -> Any:
        windows = isinstance(answer, Tensor) and hasattr(answer, _OF_HEAD) and self._count > 1
        self._shown.append(answer.shape if windows else None)
        if not windows or self.grid is None:
            return answer
        with self._stepping_aside():
            single = answer.numel() == answer.shape[0] * max(answer.shape[1:], default=1)
            return self.as_map(answer) if single else answer.reshape(*self.grid, *answer.shape[1:])

    def _hide(self, answer: Any) -> Any:
        shape = self._shown.pop()
        if shape is None:
            return answer
        with self._stepping_aside():
            single = answer.dim() == 4
            return _marked((answer.permute(0, 2, 3, 1) if single else answer).reshape(shape))

    @contextmanager
    def _stepping_aside(self) -> Iterator[None]:
        self._aside = True
        try:
            yield
        finally:
            self._aside = False


def _place(key: Key) -> str:
    return f"{key[1]!r}, called in {key[0]!r}," if key[0] else f"{key[1]!r}, called by the model itself,"


def _marked(result: Any) -> Any:
    for tensor in tensors_in(result):
        setattr(tensor, _OF_HEAD, True)
    return result


def _filled(given: Any, tensors: Iterator[Tensor], recorded: Any = None) -> Any:
    """The arguments of a call with other tensors, and with the numbers of the dry run where there are some."""
    if isinstance(given, Tensor):
        return next(tensors)
    if isinstance(given, dict):
        return {key: _filled(item, tensors, recorded and recorded[key]) for key, item in given.items()}
    if isinstance(given, (tuple, list)):
        parts = recorded if isinstance(recorded, tuple) else (None,) * len(given)
        return tuple(_filled(item, tensors, part) for item, part in zip(given, parts, strict=True))
    number = isinstance(recorded, (int, float)) and not isinstance(given, bool)
    return recorded if number else given


def fully_convolutional(module: nn.Module, size: int | tuple[int, int] = 224, *, channels: int = 3) -> nn.Module:
    """The same classifier, for images of any shape: it computes a map of logits [N, classes, h, w].

    At the trained size that map is 1 x 1 and equals the network's own output exactly. On a larger image there is one
    value for each position of the trained window on the last map. Pooling *inside* the network, as in
    squeeze-and-excite blocks, is over the whole image. The module is not changed and shares its weights, layers and
    their names with the new one.

    Args:
        module: computes logits [N, classes]; a fully convolutional one is used as it is.
        size: the size of its training images: one number, or height and width.
        channels: of the images.

    Raises:
        ModelError: it is no plain ``nn.Module``, or has another output.

    Example:
        >>> import torch
        >>> network = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 3 * 3, 2))
        >>> fully_convolutional(network, 8)(torch.ones(1, 3, 8, 12)).shape
        torch.Size([1, 2, 1, 3])
    """
    network = plain_network(module)
    height, width = (size, size) if isinstance(size, int) else size
    if isinstance(network, FullyConvolutional):
        network = network.network
    return FullyConvolutional(network, (height, width), head_of(network, (height, width), channels))


class FullyConvolutional(nn.Module):
    """A network whose head slides over the image; it shares the network's dictionaries of children and tensors."""

    network: nn.Module

    def __init__(self, network: nn.Module, size: tuple[int, int], head: Head) -> None:
        super().__init__()
        self.size = size
        self.head = head
        self.training = network.training
        vars(self).update(network=network)  # as a child it would change the layers' names
        for shared in ("_modules", "_parameters", "_buffers", "_non_persistent_buffers_set"):
            vars(self)[shared] = vars(network)[shared]

    def train(self, mode: bool = True) -> FullyConvolutional:  # noqa: FBT001, FBT002 -- as torch has it
        """Set the mode of both."""
        self.network.train(mode)
        self.training = mode
        return self

    def forward(self, pictures: Tensor) -> Tensor:
        """Logits [N, classes, h, w] of images [N, channels, H, W]."""
        self._check(pictures)
        sliding = Sliding(self.network, self.head)
        with sliding, sliding.showing_maps():
            output = main_output(self.network(pictures))
        return sliding.as_map(output) if self.head.calls else output

    def _check(self, pictures: Tensor) -> None:
        if pictures.dim() != 4:
            raise ModelError(f"the images have shape {tuple(pictures.shape)}: give a batch [N, channels, H, W]")
        height, width = pictures.shape[-2:]
        if height < self.size[0] or width < self.size[1]:
            raise ImageError(
                f"the image is {width} x {height} pixels, smaller than what the network was trained on: make it at "
                f"least {self.size[1]} x {self.size[0]}"
            )

"""The head of a network, sliding over a map: see `excite.models.convolutional`."""

from __future__ import annotations

from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from excite.errors import ModelError
from excite.models.heads import DRY_BATCH, Counting, Head, HeadCall, Key, Window
from excite.propagation.mode import operation_name
from excite.propagation.provenance import tensors_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

__all__ = ["Sliding"]

_RESHAPING = frozenset({"view", "reshape", "expand"})
_OF_HEAD = "_excite_of_head"
_REMEDY = "this network can be used only as it is, at the size it was trained on"


class Sliding(Counting):
    """While it is on, the head's calls run on windows, which lie side by side in the batch."""

    def __init__(self, network: nn.Module, head: Head) -> None:
        super().__init__(network)
        self.network = network
        self.head = head
        self.grid: tuple[int, int, int] | None = None  # pictures, and windows down and across each
        self._aside = False  # our own calls are none of the network's
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
        """Make a call of the head on windows: with the sizes of the dry run, for which it was trained."""
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
            raise ModelError(f"{_place(key)} cannot be slid over the picture ({error}): {_REMEDY}") from error

    @property
    def _count(self) -> int:
        """Windows in each picture."""
        return 1 if self.grid is None else self.grid[1] * self.grid[2]

    def _scaled(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape of the dry run, for as many windows as there are now."""
        pictures = self.grid[0] if self.grid else DRY_BATCH
        if shape[0] % DRY_BATCH:
            raise ValueError(f"a shape of {shape} does not keep the pictures apart")
        return (shape[0] // DRY_BATCH * pictures * self._count, *shape[1:])

    def _windows(self, call: HeadCall, args: Any, kwargs: Any, key: Key) -> list[Tensor]:
        """All tensors of a call, those of the body cut into windows."""
        tensors = list(tensors_in((args, kwargs)))
        if len(tensors) != len(call.reads):
            raise ModelError(f"{_place(key)} reads other things for this size of the picture: {_REMEDY}")
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
        """What the head says of each window, [N, classes, h, w]."""
        if self.grid is None or not hasattr(output, _OF_HEAD):
            raise ModelError(f"the network takes another course for this size of the picture: {_REMEDY}")
        return output.reshape(*self.grid, -1).permute(0, 3, 1, 2).contiguous()

    @contextmanager
    def showing_maps(self) -> Iterator[None]:
        """Whoever listens to a layer of the head gets its map too, not a batch of windows.

        The two hooks enclose those that are there already; a layer nobody listens to is not touched.
        """
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
    """The arguments of a call with other tensors, and with the numbers of the dry run where there was one."""
    if isinstance(given, Tensor):
        return next(tensors)
    if isinstance(given, dict):
        return {key: _filled(item, tensors, recorded and recorded[key]) for key, item in given.items()}
    if isinstance(given, (tuple, list)):
        parts = recorded if isinstance(recorded, tuple) else (None,) * len(given)
        return tuple(_filled(item, tensors, part) for item, part in zip(given, parts, strict=True))
    number = isinstance(recorded, (int, float)) and not isinstance(given, bool)
    return recorded if number else given

"""What a rule needs on the way down stays as it was on the way up, even when the network overwrites it.

Networks written for inference overwrite tensors freely (``nn.ReLU(inplace=True)``, ``out += identity``). Copying
everything would be slow, so tensors are kept by reference and copied only when somebody is about to write to them.
"""

from __future__ import annotations

import weakref

import torch
from torch import Tensor

from excite.propagation.deciding import is_known

__all__ = ["Keeper", "Kept", "is_exchangeable", "memory_of", "version_of"]

_USES = getattr(torch._C, "_storage_Use_Count", None)  # noqa: SLF001 - torch has no public name for it
_OWN_USES = 2  # of memory that one tensor looks at: the tensor's own, and that of who asks


def version_of(tensor: Tensor) -> int:
    """Torch's counter of in-place changes to a tensor's memory; tensors made in inference mode have none."""
    return 0 if tensor.is_inference() else tensor._version  # noqa: SLF001 - it has no public name


class Kept:
    """A tensor whose content will not change: see `Keeper`."""

    __slots__ = ("__weakref__", "pushes", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.pushes: list[tuple[Tensor, int]] | None = None  # its parts above and below 0, once a rule has asked

    def holds(self, tensor: Tensor) -> bool:
        """Whether that is the same tensor, or looks at the same memory in the same way."""
        mine = self.tensor
        return (
            mine.data_ptr() == tensor.data_ptr()
            and mine.shape == tensor.shape
            and mine.stride() == tensor.stride()
            and mine.dtype == tensor.dtype
        )


class Keeper:
    """Knows which memory is being kept, and copies it just before it is overwritten."""

    def __init__(self) -> None:
        self._kept: dict[int, list[weakref.ref[Kept]]] = {}

    def keep(self, tensor: Tensor) -> Kept:
        """Keep the present content of ``tensor``; whoever asks for the same gets the same."""
        here = self._kept.setdefault(memory_of(tensor), [])
        if is_known():
            for reference in here:
                kept = reference()
                if kept is not None and kept.holds(tensor):
                    return kept
        kept = Kept(tensor.detach())
        here.append(weakref.ref(kept))
        return kept

    def before_writing(self, target: Tensor) -> None:
        """Copy whatever is kept in the memory of ``target``, which is about to be overwritten."""
        for reference in self._kept.pop(memory_of(target), ()):
            kept = reference()
            if kept is not None:
                kept.tensor = kept.tensor.clone()

    def alone_keeps(self, target: Tensor) -> bool:
        """Whether nobody but ``target`` and this keeper looks at that memory.

        Then it need not be overwritten: ``target`` can be given other memory, and what is kept stays where it is.
        """
        if _USES is None or not is_known() or target._is_view():  # noqa: SLF001 - it has no public name
            return False
        kept = sum(reference() is not None for reference in self._kept.get(memory_of(target), ()))
        looking: int = _USES(target.untyped_storage()._cdata)  # noqa: SLF001 - as above
        return looking == kept + _OWN_USES

    def saving(self) -> torch.autograd.graph.saved_tensors_hooks:
        """Have autograd's own nodes keep their tensors here as well, instead of refusing overwritten ones."""
        return torch.autograd.graph.saved_tensors_hooks(self.keep, lambda kept: kept.tensor)


def is_exchangeable(mine: Tensor, other: Tensor) -> bool:
    """Whether one of two tensors can be given the other's place without anybody else noticing."""
    return (
        type(mine) is type(other) is Tensor
        and mine.shape == other.shape
        and mine.stride() == other.stride()
        and mine.dtype == other.dtype
        and mine.device == other.device
        and mine._use_count() == other._use_count() == 1  # type: ignore[attr-defined]  # noqa: SLF001 - no public name
        and not (mine.is_leaf or other.is_leaf or weakref.getweakrefs(mine) or weakref.getweakrefs(other))
    )


def memory_of(tensor: Tensor) -> int:
    """Which memory a tensor lies in; while a graph is written down for all images it has none, only an owner."""
    storage = tensor.untyped_storage()
    return storage.data_ptr() if is_known() else storage._cdata  # noqa: SLF001 - it has no public name

"""Odd spellings that lose an activation's history: each must be explained as its plain twin is, or refused by name."""

from __future__ import annotations

import copy
import ctypes
import io
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from hunt.parts import SHAPE, UNITS, Parts, Spelling, in_range

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SEVERING"]


def in_thread(function: Callable[[], Any]) -> Any:
    """Run a function in another thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def integer(h: Tensor) -> torch.dtype:
    """The integers of the same width."""
    return torch.int32 if h.dtype == torch.float32 else torch.int64


def quantized(h: Tensor) -> Tensor:
    """A round trip through quantized whole numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch means to move them elsewhere
        return torch.quantize_per_tensor(h.float(), 1.0, 0, torch.qint32).dequantize().to(h.dtype)


def by_gradient(h: Tensor) -> Tensor:
    """The gradient of half the squares is the tensor itself."""
    with torch.enable_grad():
        leaf = h.detach().requires_grad_()
        return torch.autograd.grad((leaf * leaf).sum() / 2, leaf)[0]


def saved(h: Tensor) -> Tensor:
    """To a file in memory and back."""
    file = io.BytesIO()
    torch.save(h.detach(), file)
    file.seek(0)
    return torch.load(file)


def by_level(h: Tensor) -> Tensor:
    """Each of its values times the mask of where it is."""
    levels = [(h == value).to(h.dtype) * value for value in h.unique().tolist()]
    return torch.stack(levels).sum(0)


def given_data(h: Tensor) -> Tensor:
    """Other memory for an empty tensor."""
    fresh = torch.empty(0, dtype=h.dtype)
    fresh.data = h.detach()
    return fresh


def copied_bytes(h: Tensor) -> Tensor:
    """Byte by byte."""
    h = h.contiguous()
    fresh = torch.empty_like(h)
    ctypes.memmove(fresh.data_ptr(), h.data_ptr(), h.numel() * h.element_size())
    return fresh


def without_functions(function: Callable[[Tensor], Tensor], h: Tensor) -> Tensor:
    """Hidden from modes."""
    with torch._C.DisableTorchFunction():  # noqa: SLF001 - as networks for speed do
        return function(h)


def without_gradients(function: Callable[[Tensor], Tensor], h: Tensor) -> Tensor:
    """As in inference."""
    with torch.no_grad():
        return function(h)


class Doubled(torch.autograd.Function):
    """A function with a gradient of its own."""

    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:  # noqa: ARG004 - as torch asks for it
        """Twice."""
        return h * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ARG004 - as above
        """Twice."""
        return gradient * 2


def written(target: Tensor, *steps: Callable[[Tensor], Any]) -> Tensor:
    """Overwrite a workspace without gradients."""
    with torch.no_grad():
        for step in steps:
            step(target)
    return target


def twice(_parts: Parts, h: Tensor) -> Tensor:
    """The plain twin of what doubles."""
    return h * 2


def convolved(parts: Parts, h: Tensor) -> Tensor:
    """The plain twin of what convolves."""
    return parts.convs[5](h)


def signs(_parts: Parts, h: Tensor) -> Tensor:
    """-1 for whole numbers up to 0, 1 above: in verified steps."""
    return (h * 2 - 1).clamp(-1, 1)


def ones(_parts: Parts, h: Tensor) -> Tensor:
    """0 for whole numbers up to 0, 1 above: in verified steps."""
    return h.clamp(0, 1)


def rows(h: Tensor) -> Tensor:
    """A picture as one row."""
    return h.reshape(1, UNITS)


SEVERING: dict[str, Spelling] = {
    # integers
    "to(int)": Spelling(lambda _, h: h.to(torch.int32).to(h.dtype), whole=True),
    "long()": Spelling(lambda _, h: h.long().type_as(h), whole=True),
    "round().to(int64)": Spelling(lambda _, h: h.round().to(torch.int64).to(h.dtype), whole=True),
    "int() + float const": Spelling(lambda _, h: h.int() + torch.zeros((), dtype=h.dtype), whole=True),
    "view(int)": Spelling(lambda _, h: h.view(integer(h)).view(h.dtype)),
    "view(int) via bytes": Spelling(lambda _, h: h.contiguous().view(torch.uint8).clone().view(h.dtype)),
    "quantize": Spelling(lambda _, h: quantized(h), whole=True),
    "fake_quantize": Spelling(
        lambda _, h: torch.fake_quantize_per_tensor_affine(h.float(), 1.0, 0, -99999, 99999).to(h.dtype), whole=True
    ),
    "table[bucketize]": Spelling(lambda p, h: p.table[torch.bucketize(h, p.table)], whole=True),
    "table[searchsorted]": Spelling(lambda p, h: p.table[torch.searchsorted(p.table, h.contiguous())], whole=True),
    "table[long]": Spelling(lambda p, h: p.table[in_range(h)], whole=True),
    "take(long)": Spelling(lambda p, h: p.table.take(in_range(h)), whole=True),
    "embedding": Spelling(lambda p, h: functional.embedding(in_range(h), p.table[:, None])[..., 0], whole=True),
    "one_hot @ table": Spelling(
        lambda p, h: functional.one_hot(in_range(h), len(p.table)).to(h.dtype) @ p.table, whole=True
    ),
    "where(h > 0, 1, -1)": Spelling(lambda _, h: torch.where(h > 0, 1.0, -1.0).to(h.dtype), signs, whole=True),
    "(h > 0).to(float)": Spelling(lambda _, h: (h > 0).to(h.dtype), ones, whole=True),
    "1.0 * (h > 0)": Spelling(lambda _, h: h.new_ones(()) * (h > 0), ones, whole=True),
    "heaviside": Spelling(lambda _, h: torch.heaviside(h, h.new_zeros(())), ones, whole=True),
    "gt(out=float)": Spelling(lambda _, h: torch.gt(h, 0, out=torch.empty_like(h)), ones, whole=True),
    "masked_fill of zeros": Spelling(lambda _, h: torch.zeros_like(h).masked_fill(h > 0, 1.0), ones, whole=True),
    "sign of 2h - 1": Spelling(lambda _, h: (h * 2 - 1).sign(), signs, whole=True),
    "sum of (h == k) * k": Spelling(lambda _, h: by_level(h), whole=True),
    "NumPy > 0": Spelling(
        lambda _, h: torch.from_numpy((h.detach().numpy() > 0).astype(str(h.dtype)[6:])), ones, whole=True
    ),
    "np.sign of 2h - 1": Spelling(
        lambda _, h: torch.from_numpy(np.sign(h.detach().numpy() * 2 - 1)), signs, whole=True
    ),
    "list of h > 0": Spelling(
        lambda _, h: torch.tensor([1.0 if each > 0 else 0.0 for each in h.flatten().tolist()], dtype=h.dtype).view(
            SHAPE
        ),
        ones,
        whole=True,
    ),
    # functional transforms
    "vmap": Spelling(lambda _, h: torch.vmap(lambda row: row * 2)(h), twice),
    "vmap with weights": Spelling(lambda p, h: torch.vmap(lambda row: p.convs[5](row[None])[0])(h), convolved),
    "func.vjp": Spelling(lambda _, h: torch.func.vjp(lambda t: t * 2, h)[0], twice, anywhere=True),
    "func.vjp pulled back": Spelling(
        lambda _, h: torch.func.vjp(lambda t: t * 2, torch.zeros_like(h))[1](h)[0], twice, anywhere=True
    ),
    "func.jvp": Spelling(
        lambda _, h: torch.func.jvp(lambda t: t * 2, (h,), (torch.ones_like(h),))[0], twice, anywhere=True
    ),
    "func.jvp of h": Spelling(
        lambda _, h: torch.func.jvp(lambda t: t * 2, (torch.ones_like(h),), (h,))[1], twice, anywhere=True
    ),
    "func.grad": Spelling(lambda _, h: torch.func.grad(lambda t: (t * t).sum() / 2)(h), anywhere=True),
    "func.jacrev": Spelling(
        lambda _, h: torch.func.jacrev(lambda t: t * h)(torch.ones((), dtype=h.dtype)), anywhere=True
    ),
    "func.linearize": Spelling(lambda _, h: torch.func.linearize(lambda t: t * 2, h)[0], twice, anywhere=True),
    "func.functionalize": Spelling(lambda _, h: torch.func.functionalize(lambda t: t.clone().mul_(2))(h), twice),
    "autograd.grad": Spelling(lambda _, h: by_gradient(h), anywhere=True),
    "autograd.functional.vjp": Spelling(
        lambda _, h: torch.autograd.functional.vjp(lambda t: t * 2, h, torch.ones_like(h))[0], twice, anywhere=True
    ),
    # workspaces of the network
    "buffer.copy_": Spelling(lambda p, h: written(p.workspace, lambda w: w.copy_(h))),
    "buffer.copy_, cloned": Spelling(lambda p, h: written(p.workspace, lambda w: w.copy_(h)).clone()),
    "buffer[:] =": Spelling(lambda p, h: written(p.workspace, lambda w: w.__setitem__(slice(None), h))),
    "buffer[0] =": Spelling(lambda p, h: written(p.workspace, lambda w: w.__setitem__(0, h[0]))),
    "buffer.mul_(0).add_": Spelling(lambda p, h: written(p.workspace, lambda w: w.mul_(0).add_(h))),
    "buffer.zero_() +=": Spelling(lambda p, h: written(p.workspace, Tensor.zero_, lambda w: w.__iadd__(h))),
    "buffer.lerp_": Spelling(lambda p, h: written(p.workspace, lambda w: w.lerp_(h, 1.0))),
    "buffer as out=": Spelling(lambda p, h: torch.mul(h, 2, out=p.workspace), twice),
    "buffer.data.copy_": Spelling(lambda p, h: written(p.workspace, lambda w: w.data.copy_(h)), rectified=True),
    "a view of buffer": Spelling(lambda p, h: written(p.workspace.view(-1), lambda w: w.copy_(h.flatten())).view_as(h)),
    "buffer.copy_ * 2": Spelling(lambda p, h: written(p.workspace, lambda w: w.copy_(h.detach())) * 2, twice),
    "buffer in NumPy": Spelling(lambda p, h: (np.copyto(p.workspace.numpy(), h.detach().numpy()), p.workspace)[1]),
    "parameter.copy_": Spelling(lambda p, h: written(p.worked_on, lambda w: w.copy_(h))),
    "parameter.data[:] =": Spelling(
        lambda p, h: written(p.worked_on.data, lambda w: w.__setitem__(..., h)), rectified=True
    ),
    "attribute.copy_": Spelling(lambda p, h: written(p.constant, lambda w: w.copy_(h)), rectified=True),
    "attribute of fresh memory": Spelling(
        lambda p, h: (setattr(p, "fresh", torch.empty(SHAPE, dtype=h.dtype)), p.fresh.copy_(h))[1], rectified=True
    ),
    # fresh tensors
    "fresh.data =": Spelling(lambda _, h: given_data(h)),
    "fresh.set_": Spelling(lambda _, h: torch.empty(0, dtype=h.dtype).set_(h)),
    "fresh.set_(storage)": Spelling(
        lambda _, h: torch.empty(0, dtype=h.dtype).set_(h.clone().untyped_storage(), 0, h.shape, h.stride())
    ),
    "fresh.data.copy_": Spelling(lambda _, h: (e := torch.empty_like(h), e.data.copy_(h))[0], rectified=True),
    "empty(out=)": Spelling(lambda _, h: torch.mul(h, 2, out=torch.empty(0, dtype=h.dtype)), twice),
    "nn.Parameter": Spelling(lambda _, h: nn.Parameter(h.detach())),
    "nn.Parameter, of h": Spelling(lambda _, h: nn.Parameter(h, requires_grad=False)),
    "nn.Buffer": Spelling(lambda _, h: nn.Buffer(h)),
    "torch.tensor": Spelling(lambda _, h: torch.tensor(h)),
    "torch.Tensor": Spelling(lambda _, h: torch.Tensor(h), dtype=torch.float32),
    "as_tensor": Spelling(lambda _, h: torch.as_tensor(h)),
    "asarray": Spelling(lambda _, h: torch.asarray(h)),
    "asarray(copy)": Spelling(lambda _, h: torch.asarray(h, copy=True)),
    "new_tensor": Spelling(lambda _, h: h.new_tensor(h)),
    "new": Spelling(lambda _, h: h.new(h)),
    "copy.copy": Spelling(lambda _, h: copy.copy(h)),
    "copy.deepcopy": Spelling(lambda _, h: copy.deepcopy(h)),
    "copy.deepcopy, detached": Spelling(lambda _, h: copy.deepcopy(h.detach())),
    "pickle": Spelling(lambda _, h: pickle.loads(pickle.dumps(h.detach()))),  # noqa: S301 - our own bytes
    "torch.save": Spelling(lambda _, h: saved(h)),
    "apply_": Spelling(lambda _, h: h.detach().clone().apply_(lambda number: number)),
    "map_": Spelling(lambda _, h: torch.zeros_like(h).map_(h.detach(), lambda _zero, number: number)),
    "memmove": Spelling(lambda _, h: copied_bytes(h)),
    "storage": Spelling(
        lambda _, h: (
            torch.tensor(h.contiguous().clone().untyped_storage().tolist(), dtype=torch.uint8).view(h.dtype).view(SHAPE)
        )
    ),
    # out of torch and back
    "numpy": Spelling(lambda _, h: torch.from_numpy(h.detach().numpy())),
    "numpy, copied": Spelling(lambda _, h: torch.from_numpy(h.detach().numpy().copy())),
    "np.asarray": Spelling(lambda _, h: torch.as_tensor(np.asarray(h.detach()))),
    "np.array * 2": Spelling(lambda _, h: torch.tensor(np.array(h.detach()) * 2), twice),
    "tolist": Spelling(lambda _, h: torch.tensor(h.tolist(), dtype=h.dtype)),
    "dlpack": Spelling(lambda _, h: torch.from_dlpack(h.detach())),
    "dlpack capsule": Spelling(lambda _, h: torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(h.detach()))),
    "np.from_dlpack": Spelling(lambda _, h: torch.from_numpy(np.from_dlpack(h.detach()).copy())),
    "frombuffer": Spelling(
        lambda _, h: torch.frombuffer(bytearray(h.detach().numpy().tobytes()), dtype=h.dtype).view_as(h)
    ),
    "item by item": Spelling(
        lambda _, h: torch.tensor([each.item() for each in h.flatten()], dtype=h.dtype).view_as(h)
    ),
    "stack of tensors of items": Spelling(
        lambda _, h: torch.stack([torch.tensor(float(each), dtype=h.dtype) for each in h.flatten()]).view_as(h)
    ),
    "h + mean().item()": Spelling(lambda _, h: h + h.mean().item(), lambda _, h: h + h.mean(), inexact=True),
    "h + float(max)": Spelling(lambda _, h: h + float(h.amax()), lambda _, h: h + h.amax(), level=True),
    "h - sum().tolist()": Spelling(lambda _, h: h - h.sum().tolist(), lambda _, h: h - h.sum()),
    "add(alpha=item)": Spelling(
        lambda _, h: torch.add(h, torch.ones_like(h), alpha=h.amax().item()), lambda _, h: h + h.amax(), level=True
    ),
    "full(item)": Spelling(
        lambda _, h: torch.full_like(h, h.amax().item()), lambda _, h: h.amax().repeat(SHAPE), level=True
    ),
    "fill_(item)": Spelling(
        lambda _, h: torch.empty_like(h).fill_(h.amax().item()), lambda _, h: h.amax().repeat(SHAPE), level=True
    ),
    "fill_(tensor)": Spelling(
        lambda _, h: torch.empty_like(h).fill_(h.amax()), lambda _, h: h.amax().repeat(SHAPE), level=True
    ),
    "pad(value=item)": Spelling(
        lambda _, h: functional.pad(h, (1, 0), value=h.amax().item())[..., :-1],
        lambda _, h: torch.cat([h.amax().expand(*h.shape[:-1], 1), h[..., :-1]], -1),
        level=True,
    ),
    "masked_fill(item)": Spelling(
        lambda _, h: h.masked_fill(h < 0, h.amax().item()), lambda _, h: torch.where(h < 0, h.amax(), h), level=True
    ),
    # other kinds of tensors
    "nested": Spelling(lambda _, h: torch.nested.nested_tensor(list(h.detach())).to_padded_tensor(0.0)),
    "as_nested_tensor": Spelling(lambda _, h: torch.nested.as_nested_tensor(list(h)).to_padded_tensor(0.0)),
    "nested, jagged": Spelling(
        lambda _, h: torch.stack(torch.nested.as_nested_tensor(list(h), layout=torch.jagged).unbind())
    ),
    "sparse": Spelling(lambda _, h: h.to_sparse().to_dense()),
    "sparse values": Spelling(
        lambda _, h: torch.sparse_coo_tensor(torch.ones(SHAPE).nonzero().t(), h.flatten(), SHAPE).to_dense()
    ),
    "mkldnn": Spelling(lambda _, h: h.to_mkldnn().to_dense(), dtype=torch.float32),
    "complex": Spelling(lambda _, h: torch.complex(h, torch.zeros_like(h)).real),
    "complex product": Spelling(lambda _, h: (torch.complex(h, torch.zeros_like(h)) * 2).real, twice),
    "complex abs": Spelling(lambda _, h: torch.complex(h, torch.zeros_like(h)).abs(), rectified=True),
    "complex abs of two": Spelling(
        lambda _, h: torch.complex(h * 3, h * 4).abs(), lambda _, h: h * 5, rectified=True, inexact=True
    ),
    "polar": Spelling(lambda _, h: torch.polar(h, torch.zeros_like(h)).real),
    "fft and back": Spelling(lambda _, h: torch.fft.ifft(torch.fft.fft(h)).real, inexact=True),
    # what modes do not see
    "aten.detach": Spelling(lambda _, h: torch.ops.aten.detach(h)),
    "aten.clone": Spelling(lambda _, h: torch.ops.aten.clone(h.detach())),
    "aten.mul": Spelling(lambda _, h: torch.ops.aten.mul.Tensor(h, torch.full_like(h, 2)), twice),
    "aten.convolution": Spelling(
        lambda p, h: torch.ops.aten.convolution(
            h, p.convs[5].weight, p.convs[5].bias, [1, 1], [1, 1], [1, 1], False, [0, 0], 1
        ),
        convolved,
    ),
    "aten.relu_": Spelling(lambda _, h: torch.ops.aten.relu_(h.clone()), lambda _, h: torch.relu(h)),
    "_C._nn": Spelling(lambda p, h: torch.conv2d(h, p.convs[5].weight, p.convs[5].bias, padding=1), convolved),
    "thread": Spelling(lambda p, h: in_thread(lambda: p.convs[5](h)), convolved),
    "thread, no_grad": Spelling(lambda p, h: in_thread(lambda: without_gradients(p.convs[5], h)), convolved),
    "thread, detached": Spelling(lambda p, h: in_thread(lambda: p.convs[5](h.detach())), convolved),
    "DisableTorchFunction": Spelling(lambda p, h: without_functions(p.convs[5], h), convolved),
    "DisableTorchFunction, no_grad": Spelling(
        lambda p, h: without_functions(lambda t: without_gradients(p.convs[5], t), h), convolved
    ),
    "DisableTorchFunction, detached": Spelling(lambda _, h: without_functions(lambda t: t.detach() * 2, h), twice),
    "DisableTorchFunction, relu_": Spelling(
        lambda _, h: without_functions(torch.relu_, h.clone()), lambda _, h: torch.relu(h)
    ),
    "autograd.Function": Spelling(lambda _, h: Doubled.apply(h), twice),
    "jit.fork": Spelling(lambda p, h: torch.jit.wait(torch.jit.fork(p.convs[5], h)), convolved),
    "data": Spelling(lambda _, h: h.data * 2, twice, right=True),
}

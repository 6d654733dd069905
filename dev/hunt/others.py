"""Functions that torch has no samples of: a function, and arguments for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

    Arguments = tuple[tuple[Any, ...], dict[str, Any]]

__all__ = ["OTHERS"]


def some(*shape: int) -> Tensor:
    """Numbers of both signs."""
    return torch.randn(shape, dtype=torch.float64)


def args(*given: Any, **named: Any) -> Callable[[], list[Arguments]]:
    """One sample; what can be called is called when the sample is made."""

    def make() -> list[Arguments]:
        return [(tuple(each() if callable(each) else each for each in given), named)]

    return make


def flat() -> Tensor:
    """A vector."""
    return some(6)


def square() -> Tensor:
    """A matrix."""
    return some(3, 3)


def image() -> Tensor:
    """One image of two channels."""
    return some(1, 2, 4, 4)


def line() -> Tensor:
    """One signal of two channels."""
    return some(1, 2, 6)


def cell() -> list[Callable[[], Tensor]]:
    """The weights of a recurrent cell with one gate."""
    return [lambda: some(3, 3), lambda: some(3, 3)]


OTHERS: dict[str, tuple[Callable[..., Any], Callable[[], list[Arguments]]]] = {
    "Tensor.data": (lambda x: x.data, args(square)),
    "Tensor.detach": (Tensor.detach, args(square)),
    "Tensor.detach_": (lambda x: x.clone().detach_(), args(square)),
    "Tensor.copy_": (lambda x, y: x.clone().copy_(y), args(square, square)),
    "Tensor.cpu": (Tensor.cpu, args(square)),
    "Tensor.type": (lambda x: x.type(torch.float32), args(square)),
    "Tensor.type_as": (Tensor.type_as, args(square, square)),
    "Tensor.requires_grad_": (lambda x: x.requires_grad_(False), args(square)),
    "Tensor.zero_": (lambda x: x.clone().zero_(), args(square)),
    "Tensor.fill_diagonal_": (lambda x: x.clone().fill_diagonal_(2.0), args(square)),
    "Tensor.set_": (lambda x: torch.empty(0, dtype=x.dtype).set_(x), args(square)),
    "Tensor.to_mkldnn": (lambda x: x.float().to_mkldnn().to_dense(), args(square)),
    "Tensor.to_sparse_csr": (lambda x: x.to_sparse_csr().to_dense(), args(square)),
    "Tensor.unsafe_split_with_sizes": (lambda x: x.unsafe_split_with_sizes([1, 2]), args(square)),
    "Tensor.tolist": (Tensor.tolist, args(square)),
    "Tensor.numpy": (lambda x: x.detach().numpy(), args(square)),
    "Tensor.is_nonzero": (lambda x: x[0, 0].is_nonzero(), args(square)),
    "Tensor.size": (Tensor.size, args(square)),
    "detach_copy": (torch.detach_copy, args(square)),
    "select_copy": (torch.select_copy, args(square, 0, 1)),
    "slice_copy": (torch.slice_copy, args(square, 0, 0, 2)),
    "split_copy": (torch.split_copy, args(square, 1)),
    "convolution": (
        torch.convolution,
        args(image, lambda: some(2, 2, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
    ),
    "feature_dropout": (torch.feature_dropout, args(image, 0.5, True)),
    "frobenius_norm": (torch.frobenius_norm, args(square, dim=(0, 1))),
    "nuclear_norm": (torch.nuclear_norm, args(square)),
    "norm_except_dim": (torch.norm_except_dim, args(square)),
    "native_dropout": (torch.native_dropout, args(square, 0.5, True)),
    "grid_sampler": (torch.grid_sampler, args(image, lambda: torch.rand(1, 3, 3, 2, dtype=torch.float64), 0, 0, False)),
    "affine_grid_generator": (torch.affine_grid_generator, args(lambda: some(1, 2, 3), [1, 1, 2, 2], False)),
    "fake_quantize_per_tensor_affine": (torch.fake_quantize_per_tensor_affine, args(square, 0.1, 0, 0, 255)),
    "quantize_per_tensor": (lambda x: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8), args(square)),
    "poisson": (torch.poisson, args(lambda: torch.rand(3, dtype=torch.float64) * 4)),
    "gru_cell": (torch.gru_cell, args(lambda: some(1, 3), lambda: some(1, 3), lambda: some(9, 3), lambda: some(9, 3))),
    "lstm_cell": (
        lambda x, h, c, w, v: torch.lstm_cell(x, (h, c), w, v),
        args(lambda: some(1, 2), lambda: some(1, 2), lambda: some(1, 2), lambda: some(8, 2), lambda: some(8, 2)),
    ),
    "rnn_relu_cell": (torch.rnn_relu_cell, args(lambda: some(1, 3), lambda: some(1, 3), *cell())),
    "rnn_tanh_cell": (torch.rnn_tanh_cell, args(lambda: some(1, 3), lambda: some(1, 3), *cell())),
    "nn.functional.affine_grid": (
        functional.affine_grid,
        args(lambda: some(1, 2, 3), [1, 1, 2, 2], align_corners=False),
    ),
    "nn.functional.conv_tbc": (
        functional.conv_tbc,
        args(lambda: some(3, 1, 2), lambda: some(2, 2, 1), lambda: some(1)),
    ),
    "nn.functional.dropout1d": (functional.dropout1d, args(line, 0.5, True)),
    "nn.functional.fold": (functional.fold, args(lambda: some(1, 8, 4), (3, 3), (2, 2))),
    "nn.functional.gumbel_softmax": (functional.gumbel_softmax, args(square)),
    "nn.functional.gumbel_softmax hard": (functional.gumbel_softmax, args(square, hard=True)),
    "nn.functional.lp_pool1d": (functional.lp_pool1d, args(line, 2.0, 2)),
    "nn.functional.lp_pool2d": (functional.lp_pool2d, args(image, 2.0, 2)),
    "nn.functional.lp_pool3d": (functional.lp_pool3d, args(lambda: some(1, 1, 2, 2, 4), 2.0, 2)),
    "nn.functional.max_pool1d_with_indices": (functional.max_pool1d_with_indices, args(line, 2)),
    "nn.functional.max_pool2d_with_indices": (functional.max_pool2d_with_indices, args(image, 2)),
    "nn.functional.adaptive_max_pool2d_with_indices": (functional.adaptive_max_pool2d_with_indices, args(image, 2)),
    "nn.functional.native_channel_shuffle": (functional.native_channel_shuffle, args(image, 2)),
    "nn.functional.upsample_nearest": (functional.upsample_nearest, args(image, scale_factor=2)),
    "nn.functional.upsample_bilinear": (functional.upsample_bilinear, args(image, scale_factor=2)),
    "nn.functional.upsample": (functional.upsample, args(image, scale_factor=2)),
    "nn.functional.tanh": (functional.tanh, args(square)),
    "nn.functional.sigmoid": (functional.sigmoid, args(square)),
}

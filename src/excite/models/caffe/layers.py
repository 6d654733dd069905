"""Caffe's layers as torch modules, of operations that `excite.propagation` has rules for: the table is `KINDS`."""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from math import ceil, prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from excite.errors import ModelError
from excite.models.caffe.definition import Layer


class InnerProduct(nn.Linear):
    """A fully connected layer over all dimensions from ``axis`` on; flattening is a call of its own."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool, axis: int = 1, transposed: bool = False) -> None:
        super().__init__(inputs, outputs, bias)
        self.axis = axis
        self.transposed = transposed  # in the file, not here

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 -- the name is torch's
        """Flatten, then multiply."""
        return functional.linear(torch.flatten(input, self.axis), self.weight, self.bias)


class BatchNorm(nn.Module):
    """Caffe's norm: stored sums of statistics with the ``factor`` to divide them by; no scale of its own."""

    mean: Tensor
    variance: Tensor
    factor: Tensor

    def __init__(self, channels: int, *, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("variance", torch.ones(channels))
        self.register_buffer("factor", torch.ones(1))

    def forward(self, features: Tensor) -> Tensor:
        """Normalise; a factor of 0 makes the statistics 0, as in Caffe."""
        share = torch.where(self.factor == 0, self.factor, 1 / self.factor)
        return functional.batch_norm(features, self.mean * share, self.variance * share, eps=self.epsilon)


class Scale(nn.Module):
    """A factor for each channel and a shift for each channel, or one of the two."""

    def __init__(self, channels: int, *, factor: bool = True, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels)) if factor else None
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None

    def forward(self, features: Tensor) -> Tensor:
        """Multiply, then shift."""
        ones = [1] * (features.dim() - 2)
        scaled = features if self.weight is None else features * self.weight.reshape(-1, *ones)
        return scaled if self.bias is None else scaled + self.bias.reshape(-1, *ones)


class Stateless(nn.Module):
    """A layer without weights; its settings are attributes."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        vars(self).update(settings)


class Power(Stateless):
    """``(shift + scale * x) ** power``."""

    power, scale, shift = 1.0, 1.0, 0.0

    def forward(self, features: Tensor) -> Tensor:
        """Scale, shift, raise; each only where it does something."""
        features = features if self.scale == 1 else features * self.scale
        features = features if self.shift == 0 else features + self.shift
        return features if self.power == 1 else features**self.power


class LocalNorm(Stateless):
    """LRN within each channel, by the mean square of the neighbourhood; Caffe ignores ``k`` here."""

    size, alpha, beta = 5, 1.0, 0.75

    def forward(self, features: Tensor) -> Tensor:
        """Divide by a power of 1 plus the mean square."""
        around = functional.avg_pool2d(features.square(), self.size, stride=1, padding=self.size // 2)
        return features / (1 + self.alpha * around) ** self.beta


class Concat(Stateless):
    """All inputs, one after the other."""

    axis = 1

    def forward(self, *parts: Tensor) -> Tensor:
        """Concatenate."""
        return torch.cat(parts, self.axis)


class Eltwise(Stateless):
    """The sum, the product or the maximum of all inputs, each times its coefficient."""

    operation = "SUM"
    coefficients: Sequence[float]

    def forward(self, *terms: Tensor) -> Tensor:
        """Combine them one after the other."""
        weighted = (x if c == 1 else x * c for x, c in zip(terms, self.coefficients, strict=True))
        return reduce(COMBINING[self.operation], weighted)


class Reshape(Stateless):
    """Reshape each image: 0 keeps the dimension, -1 is inferred."""

    dims: Sequence[int]

    def forward(self, features: Tensor) -> Tensor:
        """Reshape all but the first dimension."""
        dims = [dim or features.shape[index] for index, dim in enumerate(self.dims)]
        return torch.unflatten(features.flatten(1), 1, dims[1:])


# One builder for each kind of layer: the meaning of its options in torch.

Shape = Sequence[int]
Builder = Callable[[Layer, Sequence[Shape]], nn.Module]
COMBINING: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"SUM": torch.add, "PROD": torch.mul, "MAX": torch.maximum}
SPATIAL = frozenset({"Convolution", "Deconvolution", "LRN", "Pooling"})  # torch would take 3 dimensions for one image
FOR_TRAINING = frozenset(  # options of training and of the implementation
    "weight_filler bias_filler filler engine force_nd_im2col moving_average_fraction stable_prod_grad".split()
)


class Kind(NamedTuple):
    """How a kind of layer is built, which options it has, and whether it takes several blobs."""

    build: Builder
    options: str
    joins: bool = False


def build(layer: Layer, shapes: Sequence[Shape]) -> nn.Module:
    """The module of a layer whose inputs have these shapes; a ModelError where its kind or an option is unknown."""
    if layer.kind not in KINDS:
        raise refusal(layer, f"is of a kind that excite cannot build; it knows {', '.join(KINDS)}")
    kind = KINDS[layer.kind]
    unknown = set(layer.options) - set(kind.options.split()) - FOR_TRAINING
    if unknown:
        raise refusal(layer, f"has options that excite does not understand: {', '.join(sorted(unknown))}")
    if len(layer.bottoms) != 1 and not kind.joins:
        raise refusal(layer, f"reads {len(layer.bottoms)} blobs where excite can take one")
    if len(layer.tops) != 1 and layer.kind != "Split":
        raise refusal(layer, f"writes {len(layer.tops)} blobs where excite can give one")
    if layer.kind in SPATIAL and len(shapes[0]) != 4:
        raise refusal(layer, f"takes blobs of 4 dimensions, and its input has {len(shapes[0])}")
    return kind.build(layer, shapes)


def refusal(layer: Layer, reason: str) -> ModelError:
    """The error for a layer, with its name and kind."""
    return ModelError(f"Layer {layer.name[:80]!r} ({layer.kind[:40]}) {reason}.")


def _convolution(layer: Layer, shapes: Sequence[Shape]) -> nn.Module:
    _only(layer, axis=1)
    convolution: Callable[..., nn.Module] = nn.Conv2d if layer.kind == "Convolution" else nn.ConvTranspose2d
    return convolution(
        shapes[0][1],
        _number_of_outputs(layer),
        _pair(layer, "kernel_size", "kernel"),
        stride=_pair(layer, "stride", "stride", 1),
        padding=_pair(layer, "pad", "pad", 0),
        dilation=_pair(layer, "dilation", "dilation", 1),
        groups=layer.options.get("group", 1),
        bias=layer.options.get("bias_term", True),
    )


def _inner_product(layer: Layer, shapes: Sequence[Shape]) -> nn.Module:
    axis = layer.options.get("axis", 1)
    return InnerProduct(
        prod(shapes[0][axis:]),
        _number_of_outputs(layer),
        bias=layer.options.get("bias_term", True),
        axis=axis,
        transposed=layer.options.get("transpose", False),
    )


def _pooling(layer: Layer, shapes: Sequence[Shape]) -> nn.Module:
    method = layer.options.get("pool", "MAX")
    if method not in {"MAX", "AVE"}:
        raise refusal(layer, f"pools by {method}, which has no fixed answer; MAX and AVE have")
    if layer.options.get("global_pooling", False):
        return nn.AdaptiveMaxPool2d(1) if method == "MAX" else nn.AdaptiveAvgPool2d(1)
    kernel, stride = _pair(layer, "kernel_size", "kernel"), _pair(layer, "stride", "stride", 1)
    pad = _pair(layer, "pad", "pad", 0)
    ceiled = layer.options.get("round_mode", "CEIL") == "CEIL"
    if ceiled and not any(pad):  # Caffe then adds a last window, which may be outside the image
        for size, window, step in zip(shapes[0][2:], kernel, stride, strict=True):
            if ceil((size - window) / step) * step >= size:
                raise refusal(layer, "has a last window outside its input, where Caffe's answer means nothing")
    module = nn.MaxPool2d if method == "MAX" else nn.AvgPool2d  # which counts padding, but not what lies beyond it
    return module(kernel, stride, pad, ceil_mode=ceiled)


def _norm(layer: Layer, shapes: Sequence[Shape]) -> nn.Module:
    if layer.options.get("use_global_stats", True):
        return BatchNorm(shapes[0][1], epsilon=layer.options.get("eps", 1e-5))
    raise refusal(layer, "would take its statistics from the batch; for use set use_global_stats: true")


def _scale(layer: Layer, shapes: Sequence[Shape]) -> nn.Module:
    _only(layer, axis=1, num_axes=1)
    alone = layer.kind == "Bias"
    return Scale(shapes[0][1], factor=not alone, bias=alone or layer.options.get("bias_term", False))


def _local_response_norm(layer: Layer, _shapes: Sequence[Shape]) -> nn.Module:
    option = layer.options.get
    size, alpha, beta = option("local_size", 5), option("alpha", 1.0), option("beta", 0.75)
    if size % 2 == 0:
        raise refusal(layer, f"has the even local_size {size}; Caffe takes odd ones")
    if option("norm_region") == "WITHIN_CHANNEL":
        return LocalNorm(size=size, alpha=alpha, beta=beta)
    return nn.LocalResponseNorm(size, alpha, beta, option("k", 1.0))


def _relu(layer: Layer, shapes: Sequence[Shape]) -> nn.Module:
    if layer.kind == "PReLU":
        return nn.PReLU(1 if layer.options.get("channel_shared", False) else shapes[0][1])
    slope = layer.options.get("negative_slope", 0.0)
    return nn.LeakyReLU(slope) if slope else nn.ReLU()


def _eltwise(layer: Layer, shapes: Sequence[Shape]) -> nn.Module:
    if len({tuple(shape) for shape in shapes}) > 1:  # torch would stretch the smaller ones
        raise refusal(layer, f"combines blobs of different shapes: {', '.join(str(tuple(shape)) for shape in shapes)}")
    operation, coefficients = layer.options.get("operation", "SUM"), layer.options.get("coeff", ())
    terms = len(layer.bottoms)
    if coefficients and (operation != "SUM" or len(coefficients) != terms):
        raise refusal(layer, "has coefficients, which only a sum may have, and then one for each term")
    return Eltwise(operation=operation, coefficients=coefficients or [1] * terms)


def _reshape(layer: Layer, _shapes: Sequence[Shape]) -> nn.Module:
    _only(layer, axis=0, num_axes=-1)
    dims = layer.options.get("shape", ())
    if len(dims) < 2 or dims[0] != 0:
        raise refusal(layer, "does not keep the images apart; its first dim must be 0, and others follow")
    return Reshape(dims=dims)


def _plain(module: Callable[..., nn.Module], **names: str) -> Builder:
    """A builder that passes the options on, under torch's names for them."""

    def builder(layer: Layer, _shapes: Sequence[Shape]) -> nn.Module:
        return module(**{ours: layer.options[theirs] for theirs, ours in names.items() if theirs in layer.options})

    return builder


def _only(layer: Layer, **values: int) -> None:
    """Refuse other values of these options."""
    for option, value in values.items():
        if layer.options.get(option, value) != value:
            raise refusal(layer, f"has {option}: {layer.options[option]}, where excite can take only {value}")


def _number_of_outputs(layer: Layer) -> int:
    outputs = layer.options.get("num_output")
    if not outputs:
        raise refusal(layer, "has no outputs: its num_output is 0" if outputs == 0 else "does not say its num_output")
    return int(outputs)


def _pair(layer: Layer, option: str, side: str, default: int | None = None) -> tuple[int, int]:
    """Height and width of an option: one number for both, one for each, or ``_h`` and ``_w``."""
    options = layer.options
    if f"{side}_h" in options or f"{side}_w" in options:
        other = 0 if side == "pad" else None  # Caffe takes only a padding of one side alone
        height, width = options.get(f"{side}_h", other), options.get(f"{side}_w", other)
    else:
        given = options.get(option, default)
        given = given if isinstance(given, Sequence) else (given,)
        if len(given) > 2:
            raise refusal(layer, f"has {len(given)} numbers for its {option} where images have two sides")
        height, width = (given or (default,))[0], (given or (default,))[-1]
    if height is None or width is None:
        raise refusal(layer, f"does not say its {option}")
    if side != "pad" and min(height, width) < 1:
        raise refusal(layer, f"has a {option} of {height} x {width}: both must be at least 1")
    return int(height), int(width)


WINDOW = "kernel_size kernel_h kernel_w stride stride_h stride_w pad pad_h pad_w"
CONVOLUTION = f"num_output bias_term group dilation axis {WINDOW}"
KINDS = {
    "BatchNorm": Kind(_norm, "use_global_stats eps"),
    "Bias": Kind(_scale, "axis num_axes"),
    "Concat": Kind(_plain(Concat, axis="axis", concat_dim="axis"), "axis concat_dim", joins=True),
    "Convolution": Kind(_convolution, CONVOLUTION),
    "Deconvolution": Kind(_convolution, CONVOLUTION),
    "Dropout": Kind(_plain(nn.Dropout, dropout_ratio="p"), "dropout_ratio"),
    "ELU": Kind(_plain(nn.ELU, alpha="alpha"), "alpha"),
    "Eltwise": Kind(_eltwise, "operation coeff", joins=True),
    "Flatten": Kind(_plain(nn.Flatten, axis="start_dim", end_axis="end_dim"), "axis end_axis"),
    "InnerProduct": Kind(_inner_product, "num_output bias_term axis transpose"),
    "LRN": Kind(_local_response_norm, "local_size alpha beta k norm_region"),
    "PReLU": Kind(_relu, "channel_shared"),
    "Pooling": Kind(_pooling, f"pool global_pooling round_mode {WINDOW}"),
    "Power": Kind(_plain(Power, power="power", scale="scale", shift="shift"), "power scale shift"),
    "ReLU": Kind(_relu, "negative_slope"),
    "Reshape": Kind(_reshape, "shape axis num_axes"),
    "Scale": Kind(_scale, "axis num_axes bias_term"),
    "Sigmoid": Kind(_plain(nn.Sigmoid), ""),
    "Silence": Kind(_plain(nn.Identity), ""),
    "Softmax": Kind(_plain(partial(nn.Softmax, dim=1), axis="dim"), "axis"),
    "Split": Kind(_plain(nn.Identity), ""),
    "TanH": Kind(_plain(nn.Tanh), ""),
}

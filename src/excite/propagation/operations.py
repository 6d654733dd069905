"""The table of operations: which rule each torch function gets, and what else is known of it.

A new operation is one more name in the table at the end, or one function beside the others. An operation that is not in
the table runs as it is. If it only copies values that is right; if it does more, `graph.check` refuses the signal that
would pass through it, so operations beside the path of the signal (a comparison, a statistic for an ``if``) do no harm.
"""

from __future__ import annotations

import math
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from excite.propagation import attention, provenance, rewrites
from excite.propagation.fast import choose, constants, geometry, is_concrete, possibly
from excite.propagation.provenance import Provenance, is_above_tap, is_activation, provenance_of, set_provenance
from excite.propagation.rules import Affine, Hints, Pass, ProductRule, Sum

if TYPE_CHECKING:
    from collections.abc import Callable

    from excite.propagation.mode import Call

    Handler = Callable[[Call], Any]
    Range = tuple[bool, bool, bool, Tensor]


class Operation(NamedTuple):
    """A row of the table."""

    handler: Handler | None = None  # computes the response and gives it its rule; None: it runs as it is
    copies: bool = False  # its nodes in autograd's graph copy values, so that their gradient is the transition matrix
    moves: bool = False  # it copies whatever the values are: the neuron behind its input is that behind its output
    splits: bool = False  # it gives several views of its input
    linear: bool = False  # without weights; the relevance of the epsilon rule passes by the plain gradient
    rectifies: str = ""  # deconv and guided let only positive signals through: always, or where its least value is 0
    gate: int = 0  # as in `Provenance`, for its output
    gradient: str = ""  # which rule of `gradients` it follows: weights, product, one-to-one ...; "": its plain gradient


# Operations with several children for each unit (Eqns. 4, 5 and 10): weights, pooling, sums.


def convolution(call: Call) -> Any:
    """Convolutions of any dimension, transposed ones, and dense layers: ``f(input, weight, bias, ...)``."""
    weight = call.argument(1, "weight")
    if is_activation(call.argument(2, "bias")):
        return rewrites.added_bias(call)
    if call.name == "linear" and is_activation(call.subject):
        return _affine(call, call.subject, weight, functional.linear, Hints(-1))
    function, args, kwargs = call.function, call.args[3:], dict(call.kwargs)  # a rule must not hold the call itself
    for name in ("input", "weight", "bias"):
        kwargs.pop(name, None)

    def operation(child: Tensor, weight: Tensor | None) -> Tensor:
        result: Tensor = function(child, weight, None, *args, **kwargs)
        return result

    if not is_activation(call.subject):  # weights made of the image, on a constant: linear in the weights
        return _affine(call, weight, call.subject, lambda child, constant: operation(constant, child), Hints())
    hints = Hints()
    if not call.name.startswith("conv_transpose") and call.subject.dim() == weight.dim():
        hints = Hints(1, call.argument(6, "groups", default=1) != 1, geometry(call, weight))
    return _affine(call, call.subject, weight, operation, hints)


def pooling(call: Call) -> Any:
    """Average pooling, means, sums and smooth interpolation: linear with positive weights."""
    function, (args, kwargs) = call.out_of_place, call.options
    if "pool" in call.name and (call.argument(6, "divisor_override") or 1) < 0:
        return rewrites.negative_divisor(call)
    return _affine(call, call.subject, None, lambda child, _weight: function(child, *args, **kwargs), Hints())


def interpolation(call: Call) -> Any:
    """Nearest neighbour copies, the linear modes pool; bicubic has negative weights of its own and is refused."""
    mode = call.argument(3, "mode", default="nearest")
    return pooling(call) if mode in {"linear", "bilinear", "trilinear", "area"} else call.plain()


def product(call: Call) -> Any:
    """A matrix product of an activation with weights, or with a gate (attention over values)."""
    multiply: Callable[..., Tensor] = call.function
    left, right = call.subject, call.argument(1, "mat2", "other", "vec2", "vec")
    if call.name == "einsum":
        equation, *operands = call.args
        operands = list(operands[0]) if len(operands) == 1 and isinstance(operands[0], (tuple, list)) else operands
        if len(operands) != 2:
            return call.plain()
        (left, right), multiply = operands, partial(call.function, equation)
    weight_first = _weighs(left, right)
    if weight_first == _weighs(right, left):
        return call.refuse("a product of two activations, none of them weights or a gate")
    if weight_first:
        return _affine(call, right, left, lambda child, weight: multiply(weight, child), Hints())
    return _affine(call, left, right, multiply, Hints())


def _weighs(tensor: Tensor, other: Tensor) -> bool:
    """Whether ``tensor`` holds the weights of ``other``: constants do, and gates."""
    if not is_activation(tensor):
        return True
    return is_activation(other) and provenance_of(tensor).gate > provenance_of(other).gate


def _affine(call: Call, child: Tensor, weight: Tensor | None, function: Callable[..., Tensor], hints: Hints) -> Any:
    """The response of ``function(child, weight)`` and a bias, with its `Affine` rule."""
    response = call.response()
    if weight is not None and not is_above_tap(child):  # where only the weights depend on the image they are a gate
        return set_provenance(response, provenance.PREACTIVATION)
    known = provenance_of(child) if is_activation(child) else provenance.UNKNOWN
    weights = None if weight is None else weight.detach()  # their memory, whatever a parameter refers to later
    rule = choose(Affine)(function, call.mode.memory.keep(child), weights, known.baseline, hints)
    if weight is not None:
        return call.compete(rule, response, [child])
    if known.baseline is None:
        return call.compete(rule, response, [child], None, Provenance(gate=known.gate))
    baseline = function(known.baseline, None)  # what pooling gives where nothing excited its children
    return call.compete(rule, response, [child], response - baseline, Provenance(baseline=baseline, gate=known.gate))


def addition(call: Call) -> Any:
    """A sum or difference of activations is split by what each term added; a constant is a bias and takes nothing."""
    left, right = call.subject, call.argument(1, "other")
    factor = call.kwargs.get("alpha", 1) * (-1 if call.name == "sub" else 1)
    if not is_activation(right):
        return scaled(call, left, None)
    if not is_activation(left):
        return scaled(call, right, factor)
    known = provenance_of(left), provenance_of(right)
    response, gate = call.response(), min(known[0].gate, known[1].gate)
    shifted = known[0].baseline is not None or known[1].baseline is not None
    if not shifted and not call.above_tap:
        return set_provenance(response, Provenance(gate=gate, preactivation=True))
    terms, baseline = [left.detach(), right.detach() if factor == 1 else right.detach() * factor], None
    if factor > 0 and shifted:
        first, second = (0 if each.baseline is None else each.baseline for each in known)
        terms = [terms[0] - first, terms[1] - second * factor]
        baseline = first + second * factor + torch.zeros_like(response)
    above = [k for k, term in enumerate((left, right)) if is_above_tap(term)]
    saved = [call.mode.memory.keep(term) for term in terms]
    rule = Sum(saved, above, unchanged=baseline is None and factor == 1)
    signed = None if baseline is None else response - baseline
    return call.compete(rule, response, [(left, right)[k] for k in above], signed, Provenance(None, baseline, gate))


# Operations with one child for each unit: the probability stays the same (paper: ReLU and LRN layers).


def activation(call: Call) -> Any:
    """An element-wise function that keeps the sign (SiLU, GELU, leaky ReLU), and other one-to-one functions."""
    if not call.acts_on_subject:
        return call.refuse("another argument than its first is an activation")
    return call.pass_down(call.subject, Provenance(gate=call.operation.gate))


def rectifier(call: Call) -> Any:
    """ReLU: where it is 0 no unit won. Behind a neuron it is part of it; else autograd's gradient is the rule."""
    known = provenance_of(call.subject)
    if known.neuron is None or known.baseline is not None or not call.above_tap:
        return call.plain()
    response = call.response()
    return call.route(known.neuron, response, response, Provenance(gate=known.gate), bounded=True, own=True)


def bounded_activation(call: Call) -> Any:
    """An increasing function with a minimum lambda: the unit's response is its distance from lambda (Eqn. 5).

    That is never negative, so the excitatory children compete whatever the sign of the function's input.
    """
    if not call.acts_on_subject:
        return rewrites.between_activations(call)
    with constants():
        below, above, moved, least = range_of(call)
    if not below:  # clamp with a maximum only
        return activation(call)
    response = call.response()
    gate = max(1, call.operation.gate) if above else 0
    known = Provenance(baseline=torch.zeros_like(response) + least if moved else None, gate=gate)
    if not call.above_tap:
        return set_provenance(response, known)
    signed = response - least if moved else response
    neuron = provenance_of(call.subject).neuron
    if neuron is not None:
        return call.route(neuron, response, signed, known, bounded=True)
    return call.emit(Pass(call.subject.shape, signed > 0), response, [call.subject], known)


def range_of(call: Call) -> Range:
    """Of an increasing function: is it bounded below, and above, is its minimum other than 0, and that minimum."""
    args, kwargs = call.options
    plain = all(isinstance(option, (bool, int, float, str, type(None))) for option in (*args, *kwargs.values()))
    limits = _limits if plain else _limits.__wrapped__
    return limits(call.out_of_place, args, tuple(kwargs.items()), call.subject.dtype, call.subject.device)


@cache
def _limits(function: Callable[..., Tensor], args: Any, kwargs: Any, dtype: torch.dtype, device: torch.device) -> Range:
    """What the function tends to at both ends of the line; softsign's formula gives NaN there."""
    least, most = torch.tensor([[-math.inf], [math.inf]], dtype=dtype).to(device)
    if function.__name__ == "softsign":
        least, most = least.sign(), most.sign()
    else:
        least, most = function(least, *args, **dict(kwargs)), function(most, *args, **dict(kwargs))
    return bool(torch.isfinite(least).all()), bool(torch.isfinite(most).all()), bool(least.any()), least


def max_pooling(call: Call) -> Any:
    """Max pooling: each unit copies one child."""
    return call.by(choose(functional.max_pool2d)).plain() if is_concrete() else call.plain()


def dropout(call: Call) -> Any:
    """Nothing at test time; in training mode the units that were dropped cannot win."""
    if not call.argument(2, "training", "train", default=True):
        return call.subject
    if "alpha" in call.name:  # moves dropped units to a value of its own
        return call.plain()
    response, child = call.response(), call.subject
    return call.emit(Pass(child.shape, (response != 0) | (child.detach() == 0)), response, [child])


def norm(call: Call) -> Any:
    """Batch, group, layer, instance norm: part of the neuron whose response they normalise, or else one child a unit.

    Their statistics are constants of this image, so only the sign of their scale matters.
    """
    torch_order = call.function in {torch.batch_norm, torch.instance_norm}
    position = 3 if call.name in {"batch_norm", "instance_norm"} and not torch_order else 1 if torch_order else 2
    weight = call.argument(position, "weight")
    if not call.acts_on_subject:
        return call.refuse("its scale, shift or statistics are activations")
    with constants(weight):
        if weight is None:  # a norm without a scale is no shift either: its input's baseline is lost
            weight = torch.ones((), device=call.subject.device)
        elif call.name not in {"layer_norm", "rms_norm"}:
            weight = weight.detach().reshape(1, -1, *[1] * (call.subject.dim() - 2))
    return scaled(call, call.subject, weight)


def scaled(call: Call, child: Tensor, scale: Tensor | float | None) -> Tensor:
    """A constant multiple of ``child`` plus a constant: part of the neuron behind ``child``, where there is one."""
    known, response = provenance_of(child), call.response()
    if response.shape == child.shape:
        if known.preactivation:
            return set_provenance(response, Provenance(gate=known.gate, preactivation=True))
        neuron = known.neuron
        if neuron is not None:
            neuron = neuron if scale is None else neuron.scaled(scale, response)
            return call.route(neuron, response, response, Provenance(neuron, gate=known.gate), own=True)
    mask = None if scale is None or (isinstance(scale, float) and scale) else torch.as_tensor(scale).detach() != 0
    baseline = _moved_baseline(call, child, known.baseline, response)
    return call.emit(Pass(child.shape, mask), response, [child], Provenance(baseline=baseline, gate=known.gate))


def _moved_baseline(call: Call, child: Tensor, baseline: Tensor | None, response: Tensor) -> Tensor | None:
    """The baseline of a multiple or a shift of ``child``; None: 0, or not known.

    Responses that are not negative have the baseline 0 (A1); with any that are, it is not known.
    """
    own_statistics = call.name in {"rms_norm", "instance_norm"}
    if own_statistics or (call.name == "batch_norm" and call.argument(5, "training", default=False)):
        return None  # the level would have other statistics
    known = None
    if baseline is None:
        known = (child.detach() >= 0).flatten(1).all(1) if child.dim() > 1 else (child.detach() >= 0).all()
        if not possibly(known.any):
            return None
    level = torch.zeros_like(child.detach()) if baseline is None else baseline.clone()
    if call.name in {"layer_norm", "group_norm"}:
        moved = response - _slope(call) * (child.detach() - level)
    else:  # the same call on the level
        kwargs = {name: level if argument is child else argument for name, argument in call.kwargs.items()}
        args = [level if argument is child else argument for argument in call.args]
        if call.in_place and child is not call.subject:
            args[0] = call.subject.clone()
        moved = call.function(*args, **kwargs).detach()
    if not possibly(moved.any):
        return None
    if known is None or (is_concrete() and bool(known.all())):
        return moved
    if moved.shape != child.shape:  # broadcast: which unit is whose is not known
        return None if is_concrete() else moved * known.all()
    return moved * known.reshape(-1, *[1] * (child.dim() - 1))


def _slope(call: Call) -> Tensor:
    """What a layer or group norm multiplies each unit with."""
    values, weight = call.subject.detach(), call.argument(2, "weight")
    if call.name == "layer_norm":
        dims = tuple(range(-len(call.argument(1, "normalized_shape")), 0))
        variance = values.var(dims, unbiased=False, keepdim=True)
    else:
        groups = values.reshape(values.shape[0], call.argument(1, "num_groups"), -1)
        variance = groups.var(2, unbiased=False, keepdim=True).expand_as(groups).reshape(values.shape)
        weight = None if weight is None else weight.reshape(1, -1, *[1] * (values.dim() - 2))
    slope: Tensor = (variance + call.argument(4, "eps", default=1e-5)).rsqrt()
    return slope if weight is None else slope * weight.detach()


def multiplication(call: Call) -> Any:
    """A multiple, or an activation and its gate, where the activation takes all.

    Two activations of equal rank (gated linear units without a sigmoid) are equally needed: half to each.
    """
    left, right = call.subject, call.argument(1, "other")
    if not is_activation(right):
        return scaled(call, left, right if isinstance(right, Tensor) else float(right))
    if not is_activation(left):
        return scaled(call, right, left if isinstance(left, Tensor) else float(left))
    if left is right:  # a square
        return activation(call)
    main, gate = main_and_gate(left, right)
    if main is None:
        return call.emit(ProductRule(left.shape, right.shape), call.response(), [left, right])
    baseline = provenance_of(main).baseline
    return call.pass_down(main, Provenance(baseline=None if baseline is None else baseline * gate.detach()))


def main_and_gate(left: Tensor, right: Tensor) -> tuple[Tensor | None, Tensor]:
    """Which of two activations gates the other: by provenance, else the one that is broadcast; (None, ...): neither."""
    ranks = provenance_of(left).gate, provenance_of(right).gate
    if ranks[0] == ranks[1]:
        ranks = right.numel(), left.numel()
    if ranks[0] == ranks[1]:
        return None, left
    return (right, left) if ranks[0] > ranks[1] else (left, right)


def division(call: Call) -> Any:
    """A divisor only scales (LRN by hand, ``x / x.norm()``): the numerator takes all."""
    above, below = call.subject, call.argument(1, "other")
    if is_activation(above) and not is_activation(below):
        return scaled(call, above, below if isinstance(below, Tensor) else float(below))
    main = above if is_activation(above) else below
    return call.pass_down(main, Provenance(gate=provenance_of(main).gate))


def same(call: Call) -> Any:
    """``detach`` and ``data`` stop gradients, not probabilities."""
    with torch.set_grad_enabled(is_above_tap(call.subject)):
        return set_provenance(call.subject.view_as(call.subject), provenance_of(call.subject))


def value(call: Call) -> Any:
    """A number for an ``if``, an array, ``zeros_like(x)``: made from an activation, but itself a constant."""
    args, kwargs = call.options
    result = call.function(call.subject.detach(), *args, **kwargs)
    call.mode.taint.value_call(call, result)
    return result


# --- the table -----------------------------------------------------------------------------------------------------


class _Table(dict[str, Operation]):
    """Operations by name; a function alone is taken as the handler of an operation of which nothing else is known."""

    def __setitem__(self, name: str, row: Operation | Handler) -> None:
        super().__setitem__(name, row if isinstance(row, Operation) else Operation(row))


OPERATIONS = _Table()
NODES: dict[str, Operation] = {}  # the same rows by the names of autograd's nodes


def _row(names: str, handler: Handler | None = None, *, nodes: str = "", **columns: Any) -> None:
    row = Operation(handler, **columns)
    OPERATIONS.update(dict.fromkeys(names.split(), row))
    NODES.update(dict.fromkeys(nodes.split(), row))


# fmt: off
_row("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d linear", convolution, gradient="weights")
_row("matmul mm bmm mv einsum", product, gradient="product")
_row("addmm addmv baddbmm", rewrites.addition_of_matrix_product, gradient="product")
_row("scaled_dot_product_attention", attention.attention, gradient="same")
_row("multi_head_attention_forward", attention.seen_through, gradient="same")
_row("broadcast_tensors", rewrites.broadcast)
_row("""avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d mean sum cumsum
     fold""", pooling, linear=True, nodes="""AvgPool2D AvgPool3D MkldnnAvgPool2D AdaptiveAvgPool2D AdaptiveAvgPool3D
     MkldnnAdaptiveAvgPool2D Mean Sum Cumsum Col2Im""")
_row("interpolate upsample", interpolation, linear=True, nodes="""UpsampleLinear1D UpsampleBilinear2D
     UpsampleTrilinear3D UpsampleBicubic2D UpsampleBilinear2DAa UpsampleBicubic2DAa""")
_row("add sub", addition, linear=True, nodes="Add Sub")
_row("rsub", rewrites.reversed_subtraction, linear=True, nodes="Rsub")
_row("addcmul", rewrites.addition_of_product)
_row("relu", rectifier, copies=True, gradient="one-to-one", rectifies="always", nodes="Relu")
_row("threshold", copies=True, gradient="one-to-one", rectifies="always", nodes="Threshold")
_row("sigmoid hardsigmoid", bounded_activation, gradient="one-to-one", gate=2)
_row("tanh", bounded_activation, gradient="one-to-one", gate=1)
_row("softsign clamp_max exp sign sgn erf atan arctan", bounded_activation, gradient="one-to-one")
_row("hardtanh clamp clip clamp_min", bounded_activation, gradient="one-to-one", rectifies="from 0")
_row("relu6 elu selu celu softplus", bounded_activation, gradient="one-to-one", rectifies="always",
     nodes="Elu Softplus")
_row("silu gelu hardswish mish leaky_relu prelu rrelu", activation, gradient="one-to-one", rectifies="always",
     nodes="LeakyRelu Gelu Silu Mish Hardswish PreluKernel")
_row("""softshrink hardshrink tanhshrink logsigmoid log_softmax sqrt rsqrt reciprocal square abs
     log log1p expm1 normalize""", activation, gradient="one-to-one")
_row("pow float_power rpow", rewrites.power, gradient="one-to-one")
_row("softmax softmin", activation, gradient="one-to-one", gate=2)
_row("local_response_norm", lambda call: call.by(choose(functional.local_response_norm)).pass_down(call.subject))
_row("batch_norm instance_norm group_norm layer_norm rms_norm", norm, gradient="one-to-one")
_row("neg negative", lambda call: scaled(call, call.subject, -1.0), linear=True, nodes="Neg")
_row("mul", multiplication, linear=True, gradient="multiplication", nodes="Mul")
_row("rdiv", rewrites.reversed_division, gradient="one-to-one")
_row("div", division, linear=True, gradient="division", nodes="Div")
_row("dropout dropout1d dropout2d dropout3d feature_dropout alpha_dropout feature_alpha_dropout", dropout,
     linear=True, nodes="NativeDropout")
_row("lerp", linear=True, nodes="Lerp")
_row("maximum max", copies=True, gradient="maximum", nodes="Maximum Max")
_row("max_pool2d", max_pooling, copies=True, nodes="MaxPool2DWithIndices MkldnnMaxPool2D")
_row("""view view_as reshape reshape_as flatten unflatten ravel permute transpose swapaxes swapdims movedim moveaxis
     squeeze unsqueeze contiguous clone t T mT getitem narrow select index_select tensor_split expand expand_as repeat
     tile flip roll pad pixel_shuffle pixel_unshuffle channel_shuffle unfold to type type_as float double half
     bfloat16 alias""", copies=True, moves=True, nodes="""Alias AsStrided ChannelShuffle Clone ConstantPadNd Contiguous
     CopyBackwards Diagonal Expand Flatten Flip Identity Im2Col Index IndexSelect Movedim NativeChannelShuffle Permute
     PixelShuffle PixelUnshuffle ReflectionPad1D ReflectionPad2D ReflectionPad3D Repeat ReplicationPad1D
     ReplicationPad2D ReplicationPad3D ReshapeAlias Roll Select Slice Squeeze T ToCopy Transpose Unfold UnsafeView
     Unsqueeze View""")
_row("split chunk unbind split_with_sizes", copies=True, splits=True, nodes="Split SplitWithSizes Unbind UnsafeSplit")
_row("index_put", copies=True, nodes="IndexPut")  # unless it accumulates
# Copies whose choice depends on values or arguments; the gradient of logsumexp is a distribution over its inputs.
_row("""cat concat concatenate stack hstack vstack dstack column_stack where gather take take_along_dim masked_fill
     masked_scatter masked_select index_copy index_fill scatter repeat_interleave amax amin min minimum sort topk
     median max_pool1d max_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d real imag view_as_real
     view_as_complex""", copies=True, nodes="""AccumulateGrad AdaptiveMaxPool2D AdaptiveMaxPool3D Amax Amin Cat
     CopySlices Gather Imag IndexCopy IndexFill Logsumexp MaskedFill MaskedScatter MaskedSelect MaxPool3DWithIndices
     Median Min Minimum Real RepeatInterleave Scatter Sort Stack Take Topk UpsampleNearest1D UpsampleNearest2D
     UpsampleNearest3D UpsampleNearestExact1D UpsampleNearestExact2D UpsampleNearestExact3D ViewAsComplex ViewAsReal
     Where""")
_row("detach data", same, gradient="same")
_row("requires_grad_", lambda call: call.subject, gradient="same")
_row("requires_grad", lambda _call: False, gradient="same")  # the network runs without gradients and must not see ours
_row("""item tolist numpy __float__ __int__ __bool__ __index__ __complex__ __array__ __dlpack__ __deepcopy__
     untyped_storage storage data_ptr zeros_like ones_like full_like
     empty_like rand_like randn_like randint_like new_zeros new_ones new_full new_empty new_empty_strided new_tensor
     new""", value,
     gradient="same")
# fmt: on

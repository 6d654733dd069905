"""Uses of operations that are other operations in disguise: each is run as those, and gets their rules.

The values stay those of the network, to the last bit; only the graph is that of the simpler operations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from excite.propagation.provenance import is_activation, provenance_of, set_provenance

if TYPE_CHECKING:
    from excite.propagation.mode import Call


def exactly(call: Call, result: Tensor) -> Tensor:
    """The graph of ``result`` with the values of the call itself, which may differ in the last bit."""
    known = provenance_of(result)
    if call.mode.disturbs:  # other activations at the taps: the call itself does not have them
        return result
    result.detach().copy_(call.response())
    return set_provenance(result, known)


def addition_of_product(call: Call) -> Any:
    """``addcmul``: a product and a sum."""
    multiplied = call.mode.run(torch.mul, call.argument(1, "tensor1"), call.argument(2, "tensor2"))
    return exactly(call, call.mode.run(torch.add, call.subject, multiplied, alpha=call.argument(3, "value", default=1)))


def addition_of_matrix_product(call: Call) -> Any:
    """``addmm`` and its kind: ``beta * bias + alpha * (left @ right)``."""
    left, right = call.argument(1, "mat1", "mat", "batch1"), call.argument(2, "mat2", "vec", "batch2")
    terms = []
    for term, name in ((call.mode.run(torch.matmul, left, right), "alpha"), (call.subject, "beta")):
        factor = call.kwargs.get(name, 1)
        terms.append(term if factor == 1 else call.mode.run(torch.mul, term, factor))
    return exactly(call, call.mode.run(torch.add, *terms))


def broadcast(call: Call) -> Any:
    """``broadcast_tensors``: one tensor after the other."""
    tensors = call.args[0] if len(call.args) == 1 and not isinstance(call.args[0], Tensor) else call.args
    shape = call.function(*(tensor.detach() for tensor in tensors))[0].shape
    return [call.mode.run(Tensor.expand, tensor, shape) for tensor in tensors]


def reversed_subtraction(call: Call) -> Any:
    """``rsub``: ``other - alpha * x``."""
    other, alpha = call.argument(1, "other"), call.kwargs.get("alpha", 1)
    if not isinstance(other, Tensor):
        other = torch.as_tensor(other, dtype=call.subject.dtype, device=call.subject.device)
    return exactly(call, call.mode.run(torch.sub, other, call.subject, alpha=alpha))


def reversed_division(call: Call) -> Any:
    """``rdiv``: ``other / x``."""
    return exactly(call, call.mode.run(torch.div, call.argument(1, "other"), call.subject))


def between_activations(call: Call) -> Any:
    """``clamp`` with a bound that is itself an activation: the maximum or minimum of two."""
    if not call.name.startswith("cl"):
        return call.refuse("another argument than its first is an activation")
    least, most = call.argument(1, "min"), call.argument(2, "max")
    if call.name == "clamp_max":
        least, most = None, call.argument(1, "max")
    result = call.subject
    for bound, choice in ((least, torch.maximum), (most, torch.minimum)):
        if bound is not None:
            value = bound if isinstance(bound, Tensor) else torch.as_tensor(bound).to(result)
            result = call.mode.run(choice, result, value)
    return result


def power(call: Call) -> Any:
    """A power with a constant exponent is one-to-one; ``c ** x`` is ``exp(x log c)``."""
    base, exponent = call.subject, call.argument(1, "exponent", "other")
    if call.name == "rpow":
        base, exponent = exponent, base
    if not is_activation(exponent):
        return call.pass_down(base)
    if is_activation(base):
        return call.refuse("a power whose base and exponent are both activations")
    base = torch.as_tensor(base, dtype=exponent.dtype, device=exponent.device).detach()
    if not bool((base > 0).all()):
        return call.refuse("a power of a constant that is not positive")
    return exactly(call, call.mode.run(torch.exp, call.mode.run(torch.mul, exponent, base.log())))


def added_bias(call: Call) -> Any:
    """A convolution or dense layer whose bias is an activation: a sum of two."""
    bias, args, kwargs = call.argument(2, "bias"), list(call.args), dict(call.kwargs)
    if len(args) > 2:
        args[2] = None
    kwargs.pop("bias", None)
    weighted = call.mode.run(call.function, *args, **kwargs)
    if call.name != "linear":  # one bias for each channel
        bias = call.mode.run(torch.reshape, bias, (-1, *[1] * (call.argument(1, "weight").dim() - 2)))
    return exactly(call, call.mode.run(torch.add, weighted, call.mode.run(Tensor.expand, bias, weighted.shape)))


def negative_divisor(call: Call) -> Any:
    """Average pooling with a negative divisor: the negative of pooling with a positive one."""
    args, kwargs = list(call.args), dict(call.kwargs)
    if len(args) > 6:
        args[6] = -args[6]
    else:
        kwargs["divisor_override"] = -kwargs["divisor_override"]
    return call.mode.run(torch.neg, call.mode.run(call.function, *args, **kwargs))


def gated_linear_unit(call: Call) -> Any:
    """``glu``: one half times the sigmoid of the other."""
    dim = call.argument(1, "dim", default=-1)
    values, gate = call.mode.run(torch.chunk, call.subject, 2, dim)
    return exactly(call, call.mode.run(torch.mul, values, call.mode.run(torch.sigmoid, gate)))


def complex_magnitude(call: Call) -> Any:
    """``|z|``: the root of the sum of two squares."""
    run = call.mode.run
    squares = run(torch.square, run(torch.view_as_real, run(torch.resolve_conj, call.subject)))
    return exactly(call, run(torch.sqrt, run(torch.sum, squares, -1)))

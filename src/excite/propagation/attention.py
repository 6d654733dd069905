"""Attention: fused operations as the simpler ones they are made of, which have rules.

Attention mixes values, ``y_i = sum_j w_ij v_j`` with weights ``w = softmax(q k / sqrt(d) + mask)``. The weights are a
data-dependent gate: P(value token j | output token i) is the share of what j added to i, ``w_ij v_j`` (Eqn. 4 with
``w_ij`` in the place of the weight). Queries and keys decide the weights, add nothing to the output, and get nothing.
"""

from __future__ import annotations

import math
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from excite.propagation import provenance
from excite.propagation.provenance import set_provenance
from excite.propagation.rewrites import exactly

if TYPE_CHECKING:
    from excite.propagation.mode import Call


def attention(call: Call) -> Any:
    """``scaled_dot_product_attention``: scores, softmax, and the product with the values.

    The response is that of the fused call, to the bit. With dropout it is that of the parts.
    """
    if not call.above_tap:
        return set_provenance(call.response(), provenance.PREACTIVATION)
    run = call.mode.run
    query, key, value = (call.argument(k, name) for k, name in enumerate(("query", "key", "value")))
    if call.argument(7, "enable_gqa", default=False):  # several heads of the queries share one of keys and values
        key, value = (
            run(torch.repeat_interleave, each, query.shape[-3] // each.shape[-3], -3) for each in (key, value)
        )
    weights, dropped = _weights(call, query, key), call.argument(4, "dropout_p", default=0.0)
    if dropped:
        return run(torch.matmul, run(torch.nn.functional.dropout, weights, dropped), value)
    return exactly(call, run(torch.matmul, weights, value))


def _weights(call: Call, query: Tensor, key: Tensor) -> Any:
    """``softmax(q k / sqrt(d) + mask)``; rows that are masked altogether are 0."""
    run, scale, mask = call.mode.run, call.argument(6, "scale"), call.argument(3, "attn_mask")
    scores = run(torch.matmul, query, run(torch.transpose, key, -2, -1))
    scores = run(torch.mul, scores, 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale))
    if call.argument(5, "is_causal", default=False):
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is None:
        return run(torch.softmax, scores, -1)
    if mask.dtype == torch.bool:
        scores = run(torch.masked_fill, scores, run(torch.logical_not, mask), -math.inf)
    else:
        scores = run(torch.add, scores, mask)
    masked = (scores.detach() == -math.inf).all(-1, keepdim=True)
    weights = run(torch.softmax, run(torch.masked_fill, scores, masked, 0.0), -1)
    return run(torch.masked_fill, weights, masked, 0.0)


def seen_through(call: Call) -> Any:
    """``multi_head_attention_forward``: torch's own code in Python, with each of its calls seen by the mode."""
    code: Any = call.function
    names = {**code.__globals__, "has_torch_function": lambda _arguments: False}  # or it would call the mode again
    body = FunctionType(code.__code__, names, code.__name__, code.__defaults__, code.__closure__)
    with call.mode:
        return body(*call.args, **call.kwargs)

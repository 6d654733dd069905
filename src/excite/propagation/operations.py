"""The table: which operation follows which rule. A new operation is one more name here, or one function beside it.

An operation that is not in the table runs as it is. If it only copies values that is right; if it does more, the
signal is refused when it would meet it (`excite.propagation.graph`), so operations that are only looked at (a
comparison, a statistic for an ``if``) never stand in the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from excite.propagation.competing import (
    addition,
    addition_of_product,
    convolution,
    einstein_sum,
    interpolation,
    pooling,
    product,
    product_with_bias,
    reversed_subtraction,
    subtraction,
)
from excite.propagation.passing import (
    activation,
    bounded_activation,
    division,
    dropout,
    hidden_flag,
    largest,
    multiplication,
    negation,
    norm,
    placing,
    rectifier,
    response_norm,
    same,
    softmax,
    value,
)

if TYPE_CHECKING:
    from excite.propagation.call import Operation

__all__ = ["OPERATIONS"]


def _table(rows: dict[Operation, str]) -> dict[str, Operation]:
    return {name: operation for operation, names in rows.items() for name in names.split()}


OPERATIONS: dict[str, Operation] = _table(
    {
        convolution: "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d linear",
        pooling: """avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
                    mean sum cumsum fold""",
        interpolation: "interpolate upsample",
        product: "matmul mm bmm mv",
        product_with_bias: "addmm",
        einstein_sum: "einsum",
        rectifier: "relu",
        bounded_activation: """sigmoid tanh elu selu celu softplus softsign hardsigmoid relu6 hardtanh clamp clip
                               clamp_min clamp_max exp""",
        activation: """silu gelu hardswish mish leaky_relu prelu rrelu softshrink hardshrink tanhshrink logsigmoid
                       log_softmax pow float_power sqrt rsqrt reciprocal rdiv square abs log log1p expm1 normalize""",
        response_norm: "local_response_norm",
        largest: "max_pool2d",
        softmax: "softmax softmin",
        dropout: """dropout dropout1d dropout2d dropout3d feature_dropout alpha_dropout feature_alpha_dropout""",
        norm: "batch_norm instance_norm group_norm layer_norm rms_norm",
        negation: "neg negative",
        addition: "add",
        addition_of_product: "addcmul",
        subtraction: "sub",
        reversed_subtraction: "rsub",
        multiplication: "mul",
        division: "div",
        same: "detach data",
        hidden_flag: "requires_grad",
        value: """item tolist numpy __float__ __int__ __bool__ __index__ __complex__ __array__ zeros_like ones_like
                  full_like empty_like rand_like randn_like randint_like new_zeros new_ones new_full new_empty
                  new_tensor""",
        placing: "index_put",
    }
)

"""Methods: rules, a starting signal and how a layer is read. A new one is a `Method` here and a name in `METHODS`."""

from collections.abc import Mapping
from difflib import get_close_matches

from excite.errors import MethodError
from excite.methods.attention import CHEFER, ROLLOUT
from excite.methods.base import Forward, Method
from excite.methods.cam import C_CAM, CAM, CENTER, GRAD_CAM
from excite.methods.excitation import C_MWP, C_MWP_CHANNELS, C_MWP_NO_NORM, C_MWP_POST_NORM, EXCITE, MWP
from excite.methods.extent import C_EXTENT, EXTENT
from excite.methods.gradient import ATTN_LRP, C_DECONV, C_GRAD, C_GUIDED, DECONV, GRAD, GUIDED, LRP, LRP_EPSILON
from excite.propagation.excitation_pass import Units

__all__ = ["METHODS", "Forward", "Method", "Units", "find_method"]

METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        *(EXCITE, EXTENT, C_MWP, MWP, GRAD_CAM, GUIDED),
        *(C_EXTENT, C_MWP_POST_NORM, C_MWP_NO_NORM, C_MWP_CHANNELS, CAM, C_CAM, C_GUIDED, DECONV, C_DECONV),
        *(GRAD, C_GRAD),
        *(LRP, LRP_EPSILON, ATTN_LRP, CHEFER, ROLLOUT, CENTER),
    )
}
"""Every method by its name, the main ones first."""


def find_method(name: str) -> Method:
    """The method of that name."""
    if name in METHODS:
        return METHODS[name]
    close = get_close_matches(name, METHODS, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    raise MethodError(f"there is no method {name!r}{hint}: use one of {', '.join(METHODS)}")

"""Ways to make a map of a picture for a concept. A new one is one file here and one line in `METHODS`."""

from collections.abc import Mapping
from difflib import get_close_matches

from excite.errors import MethodError
from excite.methods.excitation import C_MWP, MWP
from excite.methods.method import Method
from excite.methods.view import View

__all__ = ["METHODS", "Method", "View", "find_method"]

METHODS: Mapping[str, Method] = {method.name: method for method in (C_MWP, MWP)}


def find_method(name: str) -> Method:
    """The method of that name."""
    if name in METHODS:
        return METHODS[name]
    close = get_close_matches(name, METHODS, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    raise MethodError(f"there is no method {name!r}{hint}: use one of {', '.join(METHODS)}")

"""HTML from jinja2's templates in the folder ``templates`` of a package: all that is put into them is text."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from excite.errors import visible

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def templates_of(package: str) -> Environment:
    r"""The templates of a package. Values are escaped, and what would act on a reader's screen is made visible.

    Example:
        >>> environment = templates_of("excite.readouts")
        >>> environment.from_string("<b>{{ name }}</b>").render(name="a<b\x1b")
        '<b>a&lt;b\\x1b</b>'
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters["fmt"] = format
    return environment


def _shown(value: Any) -> Any:
    """A value as a template shows it: what is HTML already (it has ``__html__``) stays."""
    return value if hasattr(value, "__html__") else visible(str(value))

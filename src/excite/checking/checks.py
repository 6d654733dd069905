"""Every check by its name. A new one is one file beside this one and one line in `CHECKS`."""

from collections.abc import Mapping, Sequence

from excite.checking.check import Check
from excite.checking.classes import CLASSES
from excite.checking.fading import REMOVAL
from excite.checking.independence import RANDOMISATION
from excite.checking.mass import MASS
from excite.checking.stability import STABILITY
from excite.checking.values import VALUES
from excite.errors import MethodError

__all__ = ["CHECKS", "chosen_checks"]

CHECKS: Mapping[str, Check] = {
    check.name: check for check in (MASS, VALUES, RANDOMISATION, CLASSES, REMOVAL, STABILITY)
}


def chosen_checks(names: str | None) -> list[str]:
    """The checks that somebody has named, or all of them.

    Example:
        >>> chosen_checks("values,mass"), len(chosen_checks(None))
        (['values', 'mass'], 6)
    """
    chosen: Sequence[str] = list(CHECKS) if names is None else list(dict.fromkeys(names.split(",")))
    for name in chosen:
        if name not in CHECKS:
            raise MethodError(f"there is no check {name!r}: use some of {','.join(CHECKS)}")
    return list(chosen)

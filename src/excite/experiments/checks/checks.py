"""Every check by its name. A new one is one file beside this one and one line in `CHECKS`."""

from collections.abc import Mapping, Sequence

from excite.errors import MethodError
from excite.experiments.checks.base import Check
from excite.experiments.checks.classes import CLASSES
from excite.experiments.checks.mass import MASS
from excite.experiments.checks.randomization import RANDOMISATION
from excite.experiments.checks.removal import REMOVAL
from excite.experiments.checks.stability import STABILITY
from excite.experiments.checks.values import VALUES

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

"""Rules that find anomalies in a series: one tensor's statistic, a value per recorded step.

A rule is a frozen struct of its limits. Its `Detector` takes values one by one, as a training process has them, and
reports what is wrong with each; `Rule.is_broken` does so for a whole series at once, by the same arithmetic, so that
both agree to the bit. docs/monitor.md says where the default limits come from.

Importing its modules loads msgspec and numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from msprobe_hooks.errors import ConfigError, unknown_name
from msprobe_hooks.extensions.monitor.rules.detectors import (
    DTYPES,
    Detector,
    Exploding,
    NotFinite,
    Overflow,
    Rule,
    Stuck,
    Turbulence,
    Underflow,
    Vanishing,
    alarms,
)
from msprobe_hooks.messages import shown

_KINDS: tuple[type[Any], ...] = (NotFinite, Turbulence, Exploding, Vanishing, Stuck, Overflow, Underflow)

#: The rules by name: ours, and those that msprobe's config calls so.
RULES: Final[Mapping[str, type[Any]]] = {
    **{kind.name: kind for kind in _KINDS},
    "AnomalyNan": NotFinite,
    "AnomalyTurbulence": Turbulence,
}


def make_rule(name: str, limits: Mapping[str, Any], kinds: Mapping[str, type[Any]] = RULES) -> Any:
    """Return a rule by its name with these limits; ``kinds`` are the structs of limits by name.

    Raises ConfigError that names the unknown rule or limit, or what is wrong with one, and what is allowed.
    """
    kind = kinds.get(name)
    if kind is None:
        raise unknown_name("unknown rule", name, name, kinds)
    names = kind.__struct_fields__
    for limit in limits:
        if limit not in names:
            raise unknown_name(f"rule {name} has no limit", limit, limits[limit], names)
    if "dtype" in limits and limits["dtype"] not in DTYPES:
        raise ConfigError(f"{name}: dtype", limits["dtype"], ", ".join(DTYPES), known=DTYPES)
    try:
        return msgspec.convert(dict(limits), kind)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$.")
        if lacking := next((limit for limit in names if f"field `{limit}`" in problem), None):
            problem = f"rule {name} lacks the limit {lacking!r}: {shown(dict(limits))}"
            raise ConfigError(f"rule {name}", dict(limits), f"limits with {lacking}", problem=problem) from None
        value = limits.get(place.rstrip("`")) if place else dict(limits)
        key = f"{name}: {place.rstrip('`')}" if place else f"rule {name}"
        raise ConfigError(key, value, problem.replace("`", "").replace("Expected ", "")) from None


__all__ = [
    "DTYPES",
    "RULES",
    "Detector",
    "Exploding",
    "NotFinite",
    "Overflow",
    "Rule",
    "Stuck",
    "Turbulence",
    "Underflow",
    "Vanishing",
    "alarms",
    "make_rule",
]

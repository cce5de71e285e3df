"""Standards by name: the built-in ones and those that users register."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msprobe_standards.benchmark import Benchmark
from msprobe_standards.fixed_limits import AbsoluteThreshold, AccumulativeError, BinaryConsistency, NotCompared, Ulp
from msprobe_standards.msprobe_rules import Cascade, MindsporeCheck, MsprobeBenchmark, MsprobeUlp, Thousandth
from msprobe_standards.sensitivity import Sensitivity
from msprobe_standards.validation import hint, is_limit, shown

if TYPE_CHECKING:
    from msprobe_standards.protocol import Standard


# What else a standard may be called where one is asked for.
_OTHER_NAMES = {"binary": BinaryConsistency.name}


class StandardRegistry:
    """Standards by name; plugins add theirs in ``pytest_msprobe_register_standards``."""

    def __init__(self, *built_in: type[Standard]) -> None:
        self._factories: dict[str, Callable[..., Standard]] = {standard.name: standard for standard in built_in}
        self._parameters: dict[str, Mapping[str, inspect.Parameter]] = {}

    def copy(self) -> StandardRegistry:
        """Return a registry of the same standards; what is added to it is unknown here."""
        copied = StandardRegistry()
        copied._factories = dict(self._factories)
        return copied

    def add(self, name: str, factory: Callable[..., Standard]) -> None:
        """Make ``standard(name, **limits)`` call ``factory(**limits)``; a name may be registered once.

        Args:
            name: The name of the standard.
            factory: What makes it of its limits, such as the class itself.

        Raises:
            ValueError: The name is taken by another factory.
        """
        if self._factories.setdefault(name, factory) is not factory:
            raise ValueError(f"standard {name!r} is already registered; choose another name")

    def make(self, name: str, /, **limits: Any) -> Standard:
        """Return the standard registered as ``name``, with these limits in place of its defaults.

        Args:
            name: The name of the standard, as in `standard_names`.
            **limits: Its limits by name.

        Returns:
            The standard.

        Raises:
            ValueError: The name or a limit is unknown, or a limit is not of its default's kind; the text names the
                valid ones.
        """
        factory = self._factories.get(name) or self._factories.get(_OTHER_NAMES.get(name, ""))
        if factory is None:
            raise ValueError(f"unknown standard {shown(name)}{hint(name, self.names())}")
        parameters = self._parameters.get(name)
        if parameters is None:
            parameters = self._parameters[name] = inspect.signature(factory).parameters
        for key, value in limits.items():
            if key not in parameters:
                raise ValueError(f"standard {name!r} has no limit {shown(key)}{hint(key, parameters)}")
            _check_limit(name, key, value, parameters[key].default)
        return factory(**limits)

    def names(self) -> tuple[str, ...]:
        """Return the names of all registered standards."""
        return tuple(sorted(self._factories))


def _check_limit(name: str, key: str, value: object, default: object) -> None:
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise ValueError(f"limit {key!r} of standard {name!r} is {shown(value)}; allowed: true or false")
    elif isinstance(default, (int, float)) and not is_limit(value):
        raise ValueError(f"limit {key!r} of standard {name!r} is {shown(value)}; allowed: a number >= 0")


#: The standards of this process; a session of pytest has a copy with those of its plugins.
STANDARDS = StandardRegistry(
    AbsoluteThreshold,
    AccumulativeError,
    Benchmark,
    BinaryConsistency,
    Cascade,
    MindsporeCheck,
    MsprobeBenchmark,
    MsprobeUlp,
    NotCompared,
    Sensitivity,
    Thousandth,
    Ulp,
)

register_standard = STANDARDS.add
standard = STANDARDS.make
standard_names = STANDARDS.names

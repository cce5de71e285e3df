"""Ways to a verdict on a call that are tried before golden is computed; nothing here imports torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_msprobe.installed_extensions import register

if TYPE_CHECKING:
    from pytest_msprobe.engine.replay.calls.arguments import Arguments
    from pytest_msprobe.results.result import OutputResult

#: Returns the verdicts on the outputs of a `prepared_call.DirectionCheck`, one direction of a call; None where another
#: strategy is to judge it.
Strategy: TypeAlias = "Callable[[Any], list[OutputResult] | None]"

#: Returns whether an operation on arguments is one that no CPU rejects.
IsAccepted: TypeAlias = "Callable[[str, Arguments], bool]"


class StrategyRegistry:
    """Strategies of extensions and plugins, in the order in which they are tried."""

    def __init__(self) -> None:
        self._strategies: dict[Strategy, IsAccepted | None] = {}
        register("pytest_msprobe_register_strategies", self)

    def add(self, strategy: Strategy, is_accepted: IsAccepted | None = None) -> None:
        """Try a strategy before golden is computed in blocks or whole.

        The device runs calls that ``is_accepted`` knows before golden does, on a card that computes meanwhile.
        """
        self._strategies[strategy] = is_accepted

    @property
    def strategies(self) -> tuple[Strategy, ...]:
        """The strategies in their order."""
        return tuple(self._strategies)

    def is_accepted(self, operation: str, arguments: Arguments) -> bool:
        """Return whether an operation is known to be one that no CPU rejects."""
        tests = (is_accepted for is_accepted in self._strategies.values() if is_accepted is not None)
        return any(is_accepted(operation, arguments) for is_accepted in tests)

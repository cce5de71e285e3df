"""The argument that switches a call's randomness off: with it, all the rest of the call has a golden result.

The value leaves the rest of the call on its path: dropout stays in training with a probability of zero, and a
randomized leaky ReLU goes on to draw its slopes, from an interval of one value. In evaluation mode other kernels would
run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Switch:
    """An argument by its keyword and its position, and the value with which nothing of the call is random."""

    name: str
    at: int
    off: float

    def applied(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return a call's arguments with this one at its value, wherever it was given."""
        if len(args) > self.at:
            return (*args[: self.at], self.off, *args[self.at + 1 :]), dict(kwargs)
        return tuple(args), {**kwargs, self.name: self.off}

    def __str__(self) -> str:
        return f"{self.name}={self.off:g}"


#: Finds the switch of a call from its arguments.
SwitchOf: TypeAlias = "Callable[[Sequence[Any], Mapping[str, Any]], Switch]"


def probability(name: str, at: int, off: float = 0.0) -> SwitchOf:
    """Return the switch that is a probability; ``off`` is 1 where it is that of being kept."""
    return lambda args, kwargs: Switch(name, at, off)


def between_layers(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Switch:
    """Return the switch of a recurrent network's dropout: behind the tensors, the switch for biases and the layers."""
    return Switch("dropout", recurrent_switches(args) + 2, 0.0)


def recurrent_switches(args: Sequence[Any]) -> int:
    """Return where has_biases, num_layers, dropout and training begin: behind the tensors, which may be packed."""
    return next((i for i, value in enumerate(args) if isinstance(value, bool)), len(args))


def one_slope(lower_at: int) -> SwitchOf:
    """Return the switch of a randomized leaky ReLU: the upper slope, made the lower one."""

    def switch(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Switch:
        lower = args[lower_at] if len(args) > lower_at else kwargs.get("lower", 1 / 8)
        return Switch("upper", lower_at + 1, float(lower))

    return switch

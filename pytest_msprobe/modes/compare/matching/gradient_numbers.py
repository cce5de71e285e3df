"""The gradients of a module's parameters by their count in the step.

The number in a name counts on from step to step in dumps of msprobe before 26.2, and begins with each step in others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msprobe_hooks.dump.names import is_parameters_grad, split_called

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump


def gradient_numbers(dump: Dump) -> Mapping[str, int]:
    """Return, for each record of parameters' gradients, how many its module has before it."""
    counts: defaultdict[str, int] = defaultdict(int)
    numbers: dict[str, int] = {}
    for name in filter(is_parameters_grad, dump.records):
        called = split_called(name)[0]
        numbers[name] = counts[called]
        counts[called] += 1
    return numbers


def renumbered(name: str, numbers: Mapping[str, int]) -> str:
    """Return the name of a record with the number that it has in its step; any other name comes back as it is."""
    return f"{split_called(name)[0]}.parameters_grad.{numbers[name]}" if name in numbers else name

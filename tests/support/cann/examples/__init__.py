"""Example calls of torch_npu's operators, a module a family."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator
from importlib import import_module

from torch import Generator

from tests.support.cann.example_call import Call


def all_examples() -> Iterator[tuple[str, str, Callable[[Generator], Call]]]:
    """Yield the operator, the name and what makes the call of each example, a family after the other.

    Operators that communicate have examples of whole groups in their module, which are none of these.
    """
    for family in pkgutil.iter_modules(__path__):
        made: dict[str, Callable[[Generator], Call]]
        made = getattr(import_module(f"{__name__}.{family.name}"), "EXAMPLES", {})
        yield from ((name.partition("-")[0], f"{family.name}-{name}", make) for name, make in made.items())

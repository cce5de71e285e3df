"""An argument of a call, wherever it was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def argument_of(args: Sequence[Any], kwargs: Mapping[str, Any], position: int, *names: str) -> Any:
    """Return the argument at a position or under the first of its names; None where it was not given."""
    if position < len(args):
        return args[position]
    return next((kwargs[name] for name in names if name in kwargs), None)

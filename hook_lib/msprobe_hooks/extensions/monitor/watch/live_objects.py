"""The objects of a class that this process still uses."""

from __future__ import annotations

import gc
from typing import Any


def living(kind: type | tuple[type, ...]) -> list[Any]:
    """Return all objects of a class, or of one of several.

    Garbage goes first: an optimizer that was replaced by another does not count. An object's own word for its class,
    as a proxy's or a lazy module's, is not asked for, since that may run its code.
    """
    gc.collect()
    return [one for one in gc.get_objects() if issubclass(type(one), kind)]


def are_hidden() -> bool:
    """Return whether some objects of this process cannot be listed, as `gc.freeze` has it."""
    return gc.get_freeze_count() > 0

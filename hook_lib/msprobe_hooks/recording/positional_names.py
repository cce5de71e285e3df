"""The names of a module's positional parameters, by which an argument means the same however it was passed."""

from __future__ import annotations

import inspect
from typing import Any


def positional_names(module: Any, method: str) -> list[str]:
    """Return the names of the positional parameters of a module's own method, none where they are not known."""
    try:
        parameters = inspect.signature(getattr(module, method)).parameters.values()
    except (AttributeError, TypeError, ValueError):
        return []
    return [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]

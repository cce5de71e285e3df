"""Qualified names of a program's functions, by which they can be found again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


def place_of(function: Callable[..., Any]) -> str:
    """Return where a function is: ``package.module:Class.method``."""
    module = sys.modules.get(function.__module__)
    return f"{function.__module__ if module is None else imported_as(module)}:{function.__qualname__}"


def imported_as(module: ModuleType) -> str:
    """Return the name by which a module is imported, of the script that runs as well."""
    if module.__name__ != "__main__":
        return module.__name__
    if module.__spec__ is not None:
        return module.__spec__.name
    file = getattr(module, "__file__", None)
    return Path(file).stem if file else module.__name__

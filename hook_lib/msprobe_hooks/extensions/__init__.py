"""Extensions of the library, outside of its core: each folder is one, and can be taken out by deleting it.

The package of an extension has functions of the names in `msprobe_hooks.extension_points`, which import what they need
when they are called. The core imports no extension; an extension imports the core and, where its first line says so,
one other.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any


@cache
def extensions() -> dict[str, ModuleType]:
    """Return the package of each extension by its name; packages import nothing heavy."""
    names = sorted(module.name for module in iter_modules(__path__) if module.ispkg)
    return {name: import_module(f"{__name__}.{name}") for name in names}


def implementations(point: str) -> Iterator[Any]:
    """Yield what the extensions have under the name of an extension point."""
    for extension in extensions().values():
        implementation = getattr(extension, point, None)
        if implementation is not None:
            yield implementation

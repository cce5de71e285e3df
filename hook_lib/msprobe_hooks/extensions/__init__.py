"""Extensions of the library, outside of its core: each folder is one, and can be taken out by deleting it.

The package of an extension has the names of `msprobe_hooks.extension_points` that it needs. The core imports no
extension; an extension imports the core and, where its first line says so, one other.

Importing its modules loads msgspec.
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


def first(point: str, *arguments: Any) -> Any:
    """Return what the first extension whose function takes these arguments returns, None where none does."""
    results = (implementation(*arguments) for implementation in implementations(point))
    return next((result for result in results if result is not None), None)


def exports(point: str) -> dict[str, str]:
    """Return the public names that extensions export under an extension point, and the modules that define them."""
    return {
        name: f"{__name__}.{extension}.{module}"
        for extension, package in extensions().items()
        for name, module in getattr(package, point, {}).items()
    }


def exported(point: str, name: str, exporter: str) -> Any:
    """Return what the module ``exporter`` has under a public name. Raises AttributeError where there is none."""
    module = None if name.startswith("_") else exports(point).get(name)
    if module is None:
        raise AttributeError(f"module {exporter!r} has no attribute {name!r}, and no installed extension exports it")
    return getattr(import_module(module), name)

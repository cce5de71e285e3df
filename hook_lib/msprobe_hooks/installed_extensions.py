"""Extensions that are installed: the folders of `msprobe_hooks.extensions`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

_PACKAGE = "msprobe_hooks.extensions"
_FOLDER = Path(__file__).with_name("extensions")


@cache
def extensions() -> dict[str, ModuleType]:
    """Return the package of each extension by its name; packages import nothing heavy."""
    names = sorted(module.name for module in iter_modules([str(_FOLDER)]) if module.ispkg)
    return {name: import_module(f"{_PACKAGE}.{name}") for name in names}


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
        name: f"{_PACKAGE}.{extension}.{module}"
        for extension, package in extensions().items()
        for name, module in getattr(package, point, {}).items()
    }


def exported(point: str, name: str, exporter: str) -> Any:
    """Return what the module ``exporter`` has under a public name. Raises AttributeError where there is none."""
    module = None if name.startswith("_") else exports(point).get(name)
    if module is None:
        raise AttributeError(f"module {exporter!r} has no attribute {name!r}, and no installed extension exports it")
    return getattr(import_module(module), name)

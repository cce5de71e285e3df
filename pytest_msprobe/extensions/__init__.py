"""Extensions of the plugin, outside of its core: each folder is one, and can be taken out by deleting it.

An extension enters by the hooks of `pytest_msprobe.hookspecs`, as a plugin of another distribution does: its package
has functions of their names, which import what they need when they are called. In a pytest session the package is a
plugin called ``msprobe.<folder>``, so that ``-p no:msprobe.monitor`` turns one off; where there is no session, such as
in ``check_dump`` and in commands, `register` calls the same functions.

The core imports no extension; an extension imports the core and, where its first line says so, one other.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import TypeVar

Registry = TypeVar("Registry")


@cache
def extensions() -> dict[str, ModuleType]:
    """Return the package of each extension by its name; packages import nothing heavy."""
    names = sorted(module.name for module in iter_modules(__path__) if module.ispkg)
    return {name: import_module(f"{__name__}.{name}") for name in names}


def extensions_at_start() -> dict[str, ModuleType]:
    """Return those that a start of pytest loads, as they have a module ``options`` or ``fixture``.

    The others are loaded by a run that has something of this plugin.
    """
    folder = Path(__path__[0])
    names = {path.parent.name for name in ("options", "fixture") for path in folder.glob(f"*/{name}.py")}
    return {name: import_module(f"{__name__}.{name}") for name in sorted(names)}


def register(hook: str, registry: Registry, *, at_start: bool = False) -> Registry:
    """Return the registry with what the extensions add to it in a hook, such as ``pytest_msprobe_register_devices``.

    ``at_start`` asks those alone that a start of pytest loads.
    """
    for extension in (extensions_at_start() if at_start else extensions()).values():
        implementation = getattr(extension, hook, None)
        if implementation is not None:
            implementation(registry)
    return registry

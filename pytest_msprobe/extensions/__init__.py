"""Extensions of the plugin, outside of its core: each folder is one, and can be taken out by deleting it.

An extension enters by the hooks of `pytest_msprobe.hookspecs`, as a plugin of another distribution does: its package
has functions of their names, which import what they need when they are called. In a pytest session the package is a
plugin called ``msprobe.<folder>``, so that ``-p no:msprobe.monitor`` turns one off; where there is no session, such as
in ``check_dump`` and in commands, `register` calls the same functions.

The core imports no extension; an extension imports the core and, where its first line says so, one other.

Importing its modules loads nothing.
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


def modules_at_start() -> dict[str, str]:
    """Return the module ``start`` of each extension that has one: what every start of pytest needs of it, by its name.

    Such as fixtures, which pytest looks up before it is known whether a run has something of this plugin. What a start
    needs of options is in files (`run.option_data`).
    """
    names = sorted(path.parent.name for path in Path(__path__[0]).glob("*/start.py"))
    return {name: f"{__name__}.{name}.start" for name in names}


def register(hook: str, registry: Registry) -> Registry:
    """Return the registry with what the extensions add to it in a hook, such as ``pytest_msprobe_register_devices``."""
    for extension in extensions().values():
        implementation = getattr(extension, hook, None)
        if implementation is not None:
            implementation(registry)
    return registry

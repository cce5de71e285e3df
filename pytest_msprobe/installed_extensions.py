"""Extensions that are installed: the folders of `pytest_msprobe.extensions`.

In a pytest session the package of each is a plugin called ``msprobe.<folder>``, so that ``-p no:msprobe.monitor`` turns
one off; where there is no session, such as in ``check_dump`` and in commands, `register` calls the same functions.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import TypeVar

Registry = TypeVar("Registry")

_PACKAGE = "pytest_msprobe.extensions"
_FOLDER = Path(__file__).with_name("extensions")


@cache
def extensions() -> dict[str, ModuleType]:
    """Return the package of each extension by its name; packages import nothing heavy."""
    names = sorted(module.name for module in iter_modules([str(_FOLDER)]) if module.ispkg)
    return {name: import_module(f"{_PACKAGE}.{name}") for name in names}


def modules_at_start() -> dict[str, str]:
    """Return the module ``start`` of each extension that has one: what every start of pytest needs of it, by its name.

    Such as fixtures, which pytest looks up before it is known whether a run has something of this plugin. What a start
    needs of options is in files (`run.option_data`).
    """
    names = sorted(path.parent.name for path in _FOLDER.glob("*/start.py"))
    return {name: f"{_PACKAGE}.{name}.start" for name in names}


def register(hook: str, registry: Registry) -> Registry:
    """Return the registry with what the extensions add to it in a hook, such as ``pytest_msprobe_register_devices``."""
    for extension in extensions().values():
        implementation = getattr(extension, hook, None)
        if implementation is not None:
            implementation(registry)
    return registry

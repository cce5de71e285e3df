"""Precision checks as pytest test cases.

PYTEST_DONT_REWRITE, as `PlainImports` sees to: pytest warns of plugins that it was to rewrite and could not.

Importing its modules loads msgspec, pytest, torch and yaml.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_HOMES = {
    "CallResult": "results.result",
    "ComparedRecord": "python_api.compare_dumps",
    "CheckedRecord": "python_api.check_dump",
    "Precision": "fixtures.precision",
    "Records": "python_api.check_dump",
    "TestDump": "fixtures.recording",
    "check_call": "python_api.check_dump",
    "check_dump": "python_api.check_dump",
    "compare_dumps": "python_api.compare_dumps",
    "precision_standard": "fixtures.precision",
}

# Type checkers and editors read the names, with those of extensions, from __init__.pyi.
__all__ = [
    "CallResult",
    "CheckedRecord",
    "ComparedRecord",
    "Precision",
    "Records",
    "TestDump",
    "check_call",
    "check_dump",
    "compare_dumps",
    "precision_standard",
]


class PlainImports:
    """Finds our modules as Python does where pytest is not there: without pytest's rewriting of assertions.

    pytest rewrites every module of a plugin's distribution. Where it may not write bytecode next to them it reads and
    compiles all of them in each run, though pip has compiled them. None of ours asserts what a user is to read.
    """

    packages = frozenset({"pytest_msprobe", "msprobe_hooks", "msprobe_standards"})

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module of ours is; None for any other, which is left to those after this."""
        return PathFinder.find_spec(name, path, target) if name.partition(".")[0] in cls.packages else None


if "_pytest" in sys.modules and PlainImports not in sys.meta_path:
    # Before pytest does, where it is there at all.
    sys.meta_path.insert(0, PlainImports)


def __getattr__(name: str) -> Any:
    # The engine needs torch; pytest imports this package at every start and must not pay for that.
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    if not name.startswith("_"):
        from pytest_msprobe.installed_extensions import extensions

        for extension in extensions().values():
            if name in getattr(extension, "EXPORTS", ()):
                return getattr(import_module(f".{extension.EXPORTS[name]}", extension.__name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    from pytest_msprobe.installed_extensions import extensions

    exported = (name for extension in extensions().values() for name in getattr(extension, "EXPORTS", ()))
    return sorted({*globals(), *_HOMES, *exported})

"""Our own modules, imported without pytest's rewriting of assertions.

pytest rewrites every module of a plugin's distribution. Where it may not write bytecode next to them it reads and
compiles all of them in each run, though pip has compiled them. None of ours asserts what a user is to read.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_OURS = frozenset({"pytest_msprobe", "msprobe_hooks", "msprobe_standards"})


class PlainImports:
    """Finds our modules as Python does where pytest is not there."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return where a module of ours is; None for any other, which is left to those after this."""
        return PathFinder.find_spec(name, path, target) if name.partition(".")[0] in _OURS else None


def begin() -> None:
    """Find our modules before pytest does, where it is there at all."""
    if "_pytest" in sys.modules and PlainImports not in sys.meta_path:
        sys.meta_path.insert(0, PlainImports)

"""pytest's hooks without what some plugins do in them, for items that need none of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest


class HookSubset:
    """pytest's hooks, each of those in ``left_out`` without these plugins."""

    def __init__(self, manager: pytest.PytestPluginManager, left_out: Mapping[str, Sequence[object]]) -> None:
        self._manager = manager
        self._left_out = left_out
        self._known: dict[object, _Hooks] = {}
        self._by_hooks: dict[object, _Hooks] = {}

    def instead_of(self, hooks: Any) -> Any:
        """Return what takes the place of an item's hooks, which lack those of every conftest.py of other folders."""
        if hooks not in self._by_hooks:
            self._by_hooks[hooks] = self._subset(hooks)
        return self._by_hooks[hooks]

    def _subset(self, hooks: Any) -> _Hooks:
        lacking = frozenset[object](getattr(hooks, "remove_mods", ()))
        already: Mapping[str, Sequence[object]] = getattr(hooks, "left_out", {})
        known = lacking, hooks if already else None
        if known not in self._known:
            left_out = {name: [*already.get(name, ()), *each] for name, each in self._left_out.items()}
            own = {name: self._manager.subset_hook_caller(name, [*lacking, *each]) for name, each in left_out.items()}
            self._known[known] = _Hooks(hooks, {**already, **left_out}, own)
        return self._known[known]


class _Hooks:
    """An item's hooks but for its ``own``; ``left_out`` says what these lack."""

    def __init__(self, hooks: Any, left_out: Mapping[str, Sequence[object]], own: Mapping[str, Any]) -> None:
        self._hooks = hooks
        self.left_out = left_out
        vars(self).update(own)

    def __getattr__(self, name: str) -> Any:
        found = vars(self)[name] = getattr(self._hooks, name)
        return found


# xdist only passes on what it hears.
_KNOWN = frozenset({"_pytest", "xdist", "pytest_msprobe"})


def has_external_impls(config: pytest.Config, hooks: Iterable[str]) -> bool:
    """Return whether another plugin or a ``conftest.py`` that is loaded by now implements one of the hooks."""
    return any(
        implementation.function.__module__.partition(".")[0] not in _KNOWN
        for name in hooks
        for implementation in getattr(config.hook, name).get_hookimpls()
    )

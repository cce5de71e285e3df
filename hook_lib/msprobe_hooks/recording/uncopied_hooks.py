"""Hooks of a model that stay with it: copies and pickles of the model have hooks that do nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any


def uncopied(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return a hook that does what another one does, and nothing where the module that holds it was copied.

    A module holds its hooks, so that a copy (the average of a model, a teacher) would be observed under the model's
    name, and a pickle (``torch.save(model)``, a process that is spawned) would have to hold what observes it.
    """
    # A bound method: older versions of MindSpore take no other objects as hooks than functions and methods.
    return _Uncopied(hook).__call__


def is_uncopied(hook: object) -> bool:
    """Return whether a hook is one of `uncopied`, or what is left of one in a copy or a pickle."""
    owner = getattr(hook, "__self__", None)
    return isinstance(owner, _Uncopied) or isinstance(getattr(owner, "__self__", None), nullcontext)


class _Uncopied:
    def __init__(self, hook: Callable[..., Any]) -> None:
        self._hook = hook

    def __call__(self, *args: Any) -> Any:
        return self._hook(*args)

    def __deepcopy__(self, _: object) -> _Uncopied:
        return _Uncopied(_do_nothing)

    def __reduce__(self) -> tuple[Any, ...]:
        # The process that reads the pickle may not have this package. This method, whose ``__call__`` the bound method
        # above becomes, takes any arguments and returns None.
        return getattr, (nullcontext(), "__exit__")


def _do_nothing(*_: object) -> None:
    pass

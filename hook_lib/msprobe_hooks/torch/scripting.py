"""`torch.jit.script` of a module that an instrument has hooks on, which torch would compile and cannot."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from torch import nn
from torch.jit import _recursive

from msprobe_hooks.recording.interposition import Interposition
from msprobe_hooks.recording.uncopied_hooks import is_uncopied

#: What reads the hooks of a module to script it: its type holds them, and they are compiled.
_READERS = ("infer_concrete_type_builder", "get_hook_stubs")

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


class UnscriptedHooks:
    """As long as one of these is kept, torch scripts modules as if they had no hooks of instruments.

    Their hooks stay where they are. ``remove`` ends it, and so does dropping the object.
    """

    def __init__(self) -> None:
        _readers.begin()
        self.remove = weakref.finalize(self, _readers.end)
        self.remove.atexit = False


class _Readers:
    """Torch's functions: one interposition each, whatever number of instruments run."""

    def __init__(self) -> None:
        self._instruments = 0
        self._interposed: list[Interposition] = []

    def begin(self) -> None:
        self._instruments += 1
        if self._instruments == 1:
            for name in _READERS:
                # A torch without such a function raises where it scripts a module, and says why.
                function: Any = getattr(_recursive, name, None)
                with suppress(TypeError):
                    self._interposed.append(Interposition(function, _read))

    def end(self) -> None:
        self._instruments -= 1
        if self._instruments == 0:
            for one in self._interposed:
                one.remove()
            self._interposed = []


_readers = _Readers()


def _read(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    return function(*map(_unhooked, args), **kwargs)


def _unhooked(value: Any) -> Any:
    """Return a module with the same attributes and without hooks of instruments; what has none, as it is."""
    if not isinstance(value, nn.Module):
        return value
    remaining: dict[str, Any] = {}
    hidden = False
    for table in _HOOKS:
        # A module that was not initialized has no hooks; torch reports it.
        hooks = vars(value).get(table, {})
        remaining[table] = {number: hook for number, hook in hooks.items() if not is_uncopied(hook)}
        hidden |= len(remaining[table]) < len(hooks)
    if not hidden:
        return value
    # Torch reads from it only. The module itself is not touched, as other threads may call it meanwhile.
    unhooked = nn.Module.__new__(type(value))
    vars(unhooked).update(vars(value) | remaining)
    return unhooked

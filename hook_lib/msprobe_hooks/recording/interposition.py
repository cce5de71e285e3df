"""Interposition around Python functions, which are not replaced, and hooks of a model that its copies do not have.

The function object stays the one that everybody imported; only what it runs changes. A decorated function gets another
function in the cell that its decorator closes over, a plain one gets other code. Copies and pickles of a model have
hooks that do nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import CellType, CodeType, FunctionType
from typing import Any

Around = Callable[[Callable[..., Any], Any, Any], Any]


class Interposition:
    """Has ``around(function, args, kwargs)`` called in place of a function, until ``remove``.

    Raises TypeError for what is not a Python function.
    """

    def __init__(self, function: Callable[..., Any], around: Around) -> None:
        if not isinstance(function, FunctionType):
            raise TypeError(f"{function!r} is not a Python function")
        self._function = function
        self._cell = _decorated(function)
        self._code = function.__code__
        inner = self._cell.cell_contents if self._cell is not None else _copy(function)
        self._inner = inner

        def call(*args: Any, **kwargs: Any) -> Any:
            return around(inner, args, kwargs)

        # Another interposition around the same function finds this one by its name.
        call.__name__ = function.__name__
        if self._cell is not None:
            self._cell.cell_contents = call
        else:
            function.__code__ = _calling(call, function)

    def remove(self) -> None:
        """Restore the function."""
        if self._cell is not None:
            self._cell.cell_contents = self._inner
        else:
            self._function.__code__ = self._code


def _decorated(function: FunctionType) -> CellType | None:
    for cell in function.__closure__ or ():
        inner = cell.cell_contents
        if isinstance(inner, FunctionType) and inner.__name__ == function.__name__:
            return cell
    if function.__closure__:
        raise TypeError(f"{function!r} is a closure, but not over the function that it decorates")
    return None


def _copy(function: FunctionType) -> FunctionType:
    copy = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _calling(call: Callable[..., Any], function: FunctionType) -> CodeType:
    # The code runs with the function's own globals, so what it calls travels as a constant.
    code = compile("lambda *args, **kwargs: 'call'.__call__(*args, **kwargs)", function.__code__.co_filename, "eval")
    inner = next(constant for constant in code.co_consts if isinstance(constant, CodeType))
    constants = tuple(call if constant == "call" else constant for constant in inner.co_consts)
    # Stacks show the line in which the function begins.
    line = function.__code__.co_firstlineno
    return inner.replace(co_consts=constants, co_name=function.__name__, co_firstlineno=line)


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

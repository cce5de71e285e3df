"""Running a Python function of torch so that the calls inside it are seen.

A function such as ``torch.autograd.backward`` first asks whether any mode wants to override it, and one that is on
always does. To run its body with the mode on, it is run with that question answered by no.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

_QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")

_bodies: dict[Any, Callable[..., Any] | None] = {}


def body_of(func: Any) -> Callable[..., Any] | None:
    """Return a function that runs ``func``'s body at once, or None where ``func`` asks nothing that can be answered."""
    if func not in _bodies:
        _bodies[func] = _answered(func) if isinstance(func, FunctionType) else None
    return _bodies[func]


def _no(*_: object) -> bool:
    return False


def _answered(func: FunctionType) -> Callable[..., Any] | None:
    asked = [name for name in _QUESTIONS if name in func.__code__.co_names and name in func.__globals__]
    if not asked:
        return None
    answers = dict.fromkeys(asked, _no)
    body = FunctionType(
        func.__code__, {**func.__globals__, **answers}, func.__name__, func.__defaults__, func.__closure__
    )
    body.__kwdefaults__ = func.__kwdefaults__
    return body

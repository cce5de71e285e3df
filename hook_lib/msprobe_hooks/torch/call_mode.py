"""API calls, seen by a TorchFunctionMode, however functions were imported and in whichever thread they run.

Also the names that their callers wrote, and bodies of Python functions that run without asking for overrides again.
"""

from __future__ import annotations

import sys
import threading
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any, Literal

import torch
from torch import Tensor
from torch._C import (
    DispatchKey,
    _dispatch_tls_is_dispatch_key_included,
    _get_dispatch_stack_at,
    _get_function_stack_at,
    _is_tracing,
    _len_torch_dispatch_stack,
    _len_torch_function_stack,
    _pop_torch_function_stack,
    _push_on_torch_function_stack,
)
from torch._guards import _TLS
from torch._ops import OpOverload, OpOverloadPacket
from torch.overrides import TorchFunctionMode, handle_torch_function

from msprobe_hooks.torch.apis import Api, ApiTable, operator_api
from msprobe_hooks.torch.call_spelling import as_written, call_site, is_reflected

# On while `make_fx(pre_dispatch=True)` traces, whose mode is on no stack.
_PRE_DISPATCH = DispatchKey.PreDispatch

_QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")

_bodies: dict[Any, Callable[..., Any] | None] = {}


def python_body(func: Any) -> Callable[..., Any] | None:
    """Return a function that runs ``func``'s body at once, or None where ``func`` asks nothing that can be answered."""
    if func not in _bodies:
        _bodies[func] = _answered(func) if isinstance(func, FunctionType) else None
    return _bodies[func]


def _answered(func: FunctionType) -> Callable[..., Any] | None:
    questions = [name for name in _QUESTIONS if name in func.__code__.co_names and name in func.__globals__]
    if not questions:
        return None
    answers = dict.fromkeys(questions, lambda *_: False)
    body = FunctionType(
        func.__code__, {**func.__globals__, **answers}, func.__name__, func.__defaults__, func.__closure__
    )
    body.__kwdefaults__ = func.__kwdefaults__
    return body


_HANDLER_CODE = handle_torch_function.__code__

#: The files whose frames lie between a call and the program that made it, where two modes are on: where the function
#: of a call is called, its file belongs in here.
OWN_FILES = {__file__}


def is_traced() -> bool:
    """Return whether a tracer or compiler of torch makes the calls that this thread makes now.

    Measuring would become part of what it traces, and its own calls compute no number of the program: those of Dynamo,
    AOTAutograd, inductor, `torch.export`, `make_fx`, `torch.jit.trace`, and all that run in a FakeTensorMode.
    """
    # Dynamo takes the first of these for True and traces nothing of the others. They are asked at every call.
    return (
        torch.compiler.is_compiling()
        or _is_tracing()
        or _has_compiler_context()
        or (_len_torch_dispatch_stack() > 0 and _has_tracing_mode())
        or _dispatch_tls_is_dispatch_key_included(_PRE_DISPATCH)
    )


def _has_compiler_context() -> bool:
    # What `CompileContext.try_get` and `TracingContext.try_get` look for, without an AttributeError each at every call.
    contexts = _TLS.__dict__
    return contexts.get("compile_context") is not None or contexts.get("tracing_context") is not None


def _has_tracing_mode() -> bool:
    # Modes of torch's own tracers have a key, those of programs have none.
    modes = map(_get_dispatch_stack_at, range(_len_torch_dispatch_stack()))
    return any(getattr(mode, "_mode_key", None) is not None for mode in modes)


def named(
    api: Api, func: Any, args: Any, kwargs: Any, frame: FrameType | None
) -> tuple[str, tuple[Any, ...], dict[str, Any], FrameType | None]:
    """Return a call as its caller wrote it: the record's name without number and direction, the arguments, the frame.

    ``frame`` is the one that called ``__torch_function__``.
    """
    while frame is not None and frame.f_code.co_filename in OWN_FILES:
        frame = frame.f_back
    qualified = api.qualified
    if frame is not None:
        if api.operators:
            qualified = _spelling(api, frame, args, kwargs)
        elif api.is_python and frame.f_code is _HANDLER_CODE:
            args, kwargs = as_written(func, frame, args, kwargs)
            frame = frame.f_back.f_back if frame.f_back is not None else None
    return qualified, args, kwargs, frame


# Their code runs while nothing is traced as well: around compiled code, to bring gradients into the layout that it
# expects, and where a tracer's mode handles a call and is off meanwhile.
_OF_COMPILERS = tuple(
    str(Path(torch.__file__).parent / path)
    for path in (
        *("_decomp", "_dynamo", "_functorch/_aot_autograd", "_inductor", "_meta_registrations", "_prims", "_refs"),
        *("_subclasses", "export", "fx/experimental", "fx/passes"),
    )
)


def is_of_compiler(frame: FrameType) -> bool:
    """Return whether a frame is one of torch's compilers and tracers, whose calls are not a part of the program."""
    return frame.f_code.co_filename.startswith(_OF_COMPILERS)


class CallMode(TorchFunctionMode):
    """Sees the calls of one thread while it is on that thread's stack of modes, and has each made by ``make``.

    Inside a call that is made the mode is off, as PyTorch does it, so that nested calls are not seen. ``namespaces``
    are those of libraries whose operators are seen as well.
    """

    def __init__(self, apis: ApiTable, namespaces: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self._apis = apis
        self.namespaces = namespaces

    @abstractmethod
    def make(self, api: Api, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        """Make a call of the table, looked at or not, and return its result; `named` returns its name."""

    @abstractmethod
    def note_error(self, where: str, error: Exception) -> None:
        """Note that a call could not be observed."""

    def note_unlisted(self, func: Any, result: Any) -> None:
        """Note that a function ran that is in no table; by default do nothing."""

    def note_traced(self) -> None:
        """Note that a call was let pass, as a tracer or compiler made it; by default do nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make a call, or let it pass."""
        kwargs = kwargs or {}
        api = self._apis.get(func)
        if api is None:
            return self._pass(func, types, args, kwargs)
        # A compiler that traces this gets its answer at once, and nothing of what looks becomes part of the program.
        if is_traced() or is_of_compiler(frame := sys._getframe(1)):
            self.note_traced()
            return func(*args, **kwargs)
        return self.make(api, func, args, kwargs, frame)

    def _pass(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        # A subclass's override of its own must not be passed over.
        body = python_body(func) if _PLAIN.issuperset(types) else None
        if body is not None:
            with self:
                return body(*args, **kwargs)
        if type(func) in LIBRARY_OPERATORS and self._enters(func):
            return self.__torch_function__(func, types, args, kwargs)
        result = func(*args, **kwargs)
        if isinstance(result, Tensor) or type(result) in _SEQUENCES:
            self.note_unlisted(func, result)
        return result

    def sees_library(self, namespace: str) -> bool:
        """Return whether calls of this library's operators are made by ``make``."""
        return namespace in self.namespaces

    def _enters(self, func: OpOverloadPacket | OpOverload) -> bool:
        """Enter an operator into the table where it is of a library that is seen."""
        if not self.sees_library(str(func).partition(".")[0]):
            return False
        try:
            self._apis[func] = operator_api(func)
        except Exception as error:
            self.note_error(f"torch.ops.{func}", error)
            return False
        return True


LIBRARY_OPERATORS = frozenset({OpOverloadPacket, OpOverload})
_SEQUENCES = frozenset({tuple, list})
_PLAIN = frozenset({Tensor, torch.nn.Parameter})

# What ``number + tensor`` is recorded as; other reflected operators are functions of their own.
_REFLECTED = {"Tensor.__add__": "Tensor.__radd__", "Tensor.__mul__": "Tensor.__rmul__"}


def _spelling(api: Api, frame: FrameType, args: Any, kwargs: Any) -> str:
    """Return the name of a method, or of the operator that the caller wrote for it."""
    operator = call_site(frame).operator
    if operator:
        qualified = api.operators.get(operator, api.qualified)
        is_reflection = qualified in _REFLECTED and not isinstance(args[1], Tensor) and is_reflected(frame)
    elif kwargs or len(args) != 2 or api.qualified.rpartition(".")[2] in frame.f_code.co_names:
        return api.qualified
    else:
        # The program names no method of these two operands: a function of Python, such as sum(), used the operator.
        qualified = next(iter(api.operators.values()))
        is_reflection = qualified in _REFLECTED and not isinstance(args[1], Tensor)
    return _REFLECTED[qualified] if is_reflection else qualified


Event = Literal["call", "return", "c_call", "c_return", "c_exception"]
Profile = Callable[[FrameType, Event, Any], object]


class ThisThread:
    """The mode on the stack of the thread that begins."""

    def __init__(self, mode: CallMode) -> None:
        self._mode = mode

    def begin(self) -> None:
        """Push the mode on the stack."""
        _push_on_torch_function_stack(self._mode)

    def end(self) -> None:
        """Take the mode off, wherever it is by now."""
        places = range(_len_torch_function_stack())
        if all(_get_function_stack_at(place) is not self._mode for place in places):
            return
        above = []
        while (top := _pop_torch_function_stack()) is not self._mode:
            above.append(top)
        for other in reversed(above):
            _push_on_torch_function_stack(other)


class NewThreads:
    """Puts a mode on every thread that starts between ``begin`` and ``end``.

    A profiler that was set for new threads keeps working.
    """

    def __init__(self, mode: CallMode) -> None:
        self._mode = mode
        self._other: Profile | None = None

    def begin(self) -> None:
        """Watch for threads."""
        self._other = threading.getprofile()
        threading.setprofile(self._enter)

    def end(self) -> None:
        """Stop watching."""
        threading.setprofile(self._other)

    def _enter(self, frame: FrameType, event: Event, argument: Any) -> None:
        _push_on_torch_function_stack(self._mode)
        sys.setprofile(self._other)
        if self._other is not None:
            self._other(frame, event, argument)

"""API calls, seen by a TorchFunctionMode: functions, methods and operators, however they were imported."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket
from torch.overrides import TorchFunctionMode, handle_torch_function

from msprobe_hooks.recording import calls
from msprobe_hooks.recording.backward import tensors_in
from msprobe_hooks.recording.calls import ApiCall
from msprobe_hooks.torch import api_lists
from msprobe_hooks.torch.apis import Api, ApiTable, operator_api
from msprobe_hooks.torch.gradients import is_in_backward
from msprobe_hooks.torch.naming.call_sites import as_written, call_site
from msprobe_hooks.torch.naming.operands import is_reflected
from msprobe_hooks.torch.recompute import PostponedStop
from msprobe_hooks.torch.recorder import TorchRecorder
from msprobe_hooks.torch.transparent import body_of

_HANDLER_CODE = handle_torch_function.__code__

# The files whose frames lie between a call and the program that made it, where two recordings are on.
_OWN_FILES = frozenset({__file__, calls.__file__})

# Functions after which a tensor's memory can change without its version counter moving.
_EXPOSING = frozenset(
    {
        Tensor.data.__get__,  # type: ignore[attr-defined]
        Tensor.data.__set__,  # type: ignore[attr-defined]
        Tensor.numpy,
        Tensor.data_ptr,
        Tensor.untyped_storage,
        Tensor.__array__,
        Tensor.__dlpack__,
    }
)


def is_traced() -> bool:
    """Tell whether torch.compile or torch.jit.trace is looking, to whom measuring would become part of the program."""
    return torch.compiler.is_compiling() or torch._C._is_tracing()


class CallMode(TorchFunctionMode):
    """Records the calls of one thread while it is on that thread's stack of modes.

    Inside a recorded call the mode is off, as PyTorch does it, so that nested calls are not recorded.
    """

    def __init__(self, recorder: TorchRecorder, apis: ApiTable) -> None:
        super().__init__()
        self._recorder = recorder
        self._apis = apis
        self._namespaces = frozenset(recorder.settings.custom_op_namespaces)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record a call, or let it pass."""
        kwargs = kwargs or {}
        api = self._apis.get(func)
        if api is None:
            return self._pass(func, types, args, kwargs)
        recorder = self._recorder
        if not recorder.is_recording or recorder.is_suspended or is_traced():
            return func(*args, **kwargs)
        call = _begin(recorder, api, func, args, kwargs, sys._getframe(1))
        if call is None:
            return func(*args, **kwargs)
        if api.writes:
            func = _discarding(func, recorder)
        if is_in_backward():
            with PostponedStop():
                result = call.run(func, args, kwargs)
        else:
            result = call.run(func, args, kwargs)
        if api.qualified == "Tensor.numpy":
            recorder.measured.expose(args[0])
        return result

    def _pass(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func in _EXPOSING and self._recorder.is_recording:
            self._recorder.measured.expose(args[0])
        # A subclass's override of its own must not be passed over.
        body = body_of(func) if all(kind in _PLAIN for kind in types) else None
        if body is None:
            if type(func) in _LIBRARY_OPERATORS and self._enters(func):
                return self.__torch_function__(func, types, args, kwargs)
            result = func(*args, **kwargs)
            if isinstance(result, Tensor) or type(result) in _SEQUENCES:
                self._note_unlisted(func, result)
            return result
        with self:
            result = body(*args, **kwargs)
        if func in _BACKWARD:
            # Data parallelism reduces gradients in place, unseen, before this returns.
            self._recorder.measured.forget()
        return result

    def _enters(self, func: OpOverloadPacket | OpOverload) -> bool:
        """Enter an operator into the table where it is of a library that is wanted."""
        if str(func).partition(".")[0] not in self._namespaces:
            return False
        try:
            self._apis[func] = operator_api(func)
        except Exception as error:
            self._recorder.summary.note_error(f"torch.ops.{func}", error)
            return False
        return True

    def _note_unlisted(self, func: Any, result: Any) -> None:
        """Count a call that is in no table and has computed a tensor."""
        if not isinstance(result, Tensor) and not (result and isinstance(result[0], Tensor)):
            return
        recorder = self._recorder
        name = str(func) if type(func) in _LIBRARY_OPERATORS else getattr(func, "__name__", "")
        if name not in api_lists.IDLE and recorder.is_recording and not recorder.is_suspended and not is_traced():
            recorder.summary.unrecorded[name] += 1


_LIBRARY_OPERATORS = frozenset({OpOverloadPacket, OpOverload})
_SEQUENCES = frozenset({tuple, list})
_PLAIN = frozenset({Tensor, torch.nn.Parameter})

# What ``number + tensor`` is recorded as; other reflected operators are functions of their own.
_REFLECTED = {"Tensor.__add__": "Tensor.__radd__", "Tensor.__mul__": "Tensor.__rmul__"}
_BACKWARD = frozenset({Tensor.backward, torch.autograd.backward, torch.autograd.grad})


def _discarding(func: Any, recorder: TorchRecorder) -> Any:
    """Return a function after which the tensors among its arguments are measured anew, in its result as well."""

    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return func(*args, **kwargs)
        finally:
            for tensor in tensors_in((args, kwargs), Tensor):
                recorder.measured.discard(tensor)

    return run


def _spelling(api: Api, frame: FrameType, args: Any, kwargs: Any) -> str:
    """Return the name of a method, or of the operator that the caller wrote for it."""
    operator = call_site(frame).operator
    if operator:
        qualified = api.operators.get(operator, api.qualified)
        is_reflection = qualified in _REFLECTED and not isinstance(args[1], Tensor) and is_reflected(frame)
    elif kwargs or len(args) != 2 or api.qualified.rpartition(".")[2] in frame.f_code.co_names:
        return api.qualified
    else:
        # Nobody names the method of these two operands: a function of Python's own, such as sum(), used the operator.
        qualified = next(iter(api.operators.values()))
        is_reflection = qualified in _REFLECTED and not isinstance(args[1], Tensor)
    return _REFLECTED[qualified] if is_reflection else qualified


def _begin(
    recorder: TorchRecorder, api: Api, func: Any, args: Any, kwargs: Any, frame: FrameType | None
) -> ApiCall | None:
    try:
        while frame is not None and frame.f_code.co_filename in _OWN_FILES:
            frame = frame.f_back
        qualified = api.qualified
        if frame is not None:
            if api.operators:
                qualified = _spelling(api, frame, args, kwargs)
            elif api.is_python and frame.f_code is _HANDLER_CODE:
                args, kwargs = as_written(func, frame, args, kwargs)
                frame = frame.f_back.f_back if frame.f_back is not None else None
        call = ApiCall(recorder, f"{qualified}.{recorder.number(qualified)}.forward", frame)
        changed = args[0] if qualified == "Tensor.__setitem__" else None
        written = [args[place] for place in api.written if place < len(args)] if api.written else None
        call.begin(args, kwargs, changed, written)
    except Exception as error:
        recorder.summary.note_error(api.qualified, error)
        return None
    return call

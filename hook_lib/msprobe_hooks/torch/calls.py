"""API calls, seen by a TorchFunctionMode: functions, methods and operators, however they were imported."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, handle_torch_function

from msprobe_hooks.dump.names import backward_of, is_module_name
from msprobe_hooks.torch.apis import Api, ApiTable
from msprobe_hooks.torch.gradients import Inputs, is_in_backward, tensors_in
from msprobe_hooks.torch.naming.call_sites import as_written, call_site
from msprobe_hooks.torch.naming.operands import is_reflected
from msprobe_hooks.torch.quiet import Quiet
from msprobe_hooks.torch.recorder import TorchRecorder
from msprobe_hooks.torch.transparent import body_of

_HANDLER_CODE = handle_torch_function.__code__

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


# Functions that change arguments without moving their version counters: running statistics, renormalised rows.
_WRITING = frozenset(
    {
        "Functional.batch_norm",
        "Functional.instance_norm",
        "Functional.embedding",
        "Functional.embedding_bag",
        "Torch.batch_norm",
        "Torch.instance_norm",
        "Torch.native_batch_norm",
        "Torch._batch_norm_impl_index",
        "Torch.batch_norm_update_stats",
        "Torch.batch_norm_gather_stats",
        "Torch.batch_norm_gather_stats_with_counts",
        "Torch._fused_adamw_",
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
        result = call.run(func, args, kwargs)
        if api.qualified == "Tensor.numpy":
            recorder.measured.expose(args[0])
        if api.qualified in _WRITING or api.qualified.startswith("NPU."):
            for tensor in tensors_in((args, kwargs)):
                recorder.measured.discard(tensor)
        return result

    def _pass(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func in _EXPOSING and self._recorder.is_recording:
            self._recorder.measured.expose(args[0])
        # A subclass's override of its own must not be passed over.
        body = body_of(func) if all(kind in _PLAIN for kind in types) else None
        if body is None:
            return func(*args, **kwargs)
        with self:
            result = body(*args, **kwargs)
        if func in _BACKWARD:
            # Data parallelism reduces gradients in place, unseen, before this returns.
            self._recorder.measured.forget()
        return result


_PLAIN = frozenset({Tensor, torch.nn.Parameter})

# What ``number + tensor`` is recorded as; other reflected operators are functions of their own.
_REFLECTED = {"Tensor.__add__": "Tensor.__radd__", "Tensor.__mul__": "Tensor.__rmul__"}
_BACKWARD = frozenset({Tensor.backward, torch.autograd.backward, torch.autograd.grad})


class ApiCall:
    """The record of one call in the making."""

    __slots__ = ("_changed", "_elements", "_frame", "_inputs", "_key", "_parent", "_record", "_recorder")

    def __init__(self, recorder: TorchRecorder, key: str, frame: FrameType | None) -> None:
        self._recorder = recorder
        self._key = key
        self._frame = frame
        self._record: dict[str, Any] | None = None
        self._parent = recorder.parent
        self._inputs: Inputs | None = None
        self._changed: Any = None

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Make the call and take what comes of it."""
        try:
            result = func(*args, **kwargs)
        except BaseException as error:
            self.fail(error)
            raise
        self.end(result)
        return result

    def begin(self, args: Any, kwargs: Any, *, has_grad: bool, changed: Any = None) -> None:
        """Take the arguments as they are before the call; ``changed`` is what a call without result writes to."""
        recorder = self._recorder
        wanted = recorder.directions
        if wanted.backward and has_grad:
            self._inputs = Inputs(tensors_in((args, kwargs)))
            self._changed = changed
        name = f"{self._key}.forward"
        if not wanted.forward or not recorder.filter.admits(name):
            return
        record: dict[str, Any] = {}
        self._record = record
        self._elements = elements = recorder.elements(name)
        if recorder.settings.task == "structure":
            return
        if wanted.input:
            record["input_args"] = elements.sequence(args, "input")
            record["input_kwargs"] = elements.mapping(kwargs, "kwargs")
        record["is_recompute"] = is_recomputed(self._frame)

    def end(self, result: Any) -> None:
        """Take the result; arrange for the backward record."""
        recorder = self._recorder
        try:
            if self._record is not None:
                if recorder.directions.output and recorder.settings.task != "structure":
                    with Quiet():
                        self._record["output"] = self._elements.output(result)
                self._emit()
            if self._inputs is not None:
                produced = result if self._changed is None else self._changed
                outputs = [tensor for tensor in tensors_in(produced) if tensor.requires_grad]
                if outputs:
                    recorder.watch_backward(f"{self._key}.backward", mirrored(self._parent), outputs, self._inputs)
        except Exception as error:
            recorder.note_error(self._key, error)

    def fail(self, error: BaseException) -> None:
        """Write a record that says what the call raised."""
        if self._record is not None:
            self._recorder.note_raised(self._record, error)
            self._emit()

    def _emit(self) -> None:
        assert self._record is not None
        if self._elements.details:
            self._record["details"] = self._elements.details
        self._recorder.summary.calls += 1
        self._recorder.emit(f"{self._key}.forward", self._record, self._parent, self._frame)


def _begin(
    recorder: TorchRecorder, api: Api, func: Any, args: Any, kwargs: Any, frame: FrameType | None
) -> ApiCall | None:
    try:
        while frame is not None and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        qualified = api.qualified
        if frame is not None:
            if api.operators:
                qualified = api.operators.get(call_site(frame).operator, qualified)
                if qualified in _REFLECTED and not isinstance(args[1], Tensor) and is_reflected(frame):
                    qualified = _REFLECTED[qualified]
            elif api.is_python and frame.f_code is _HANDLER_CODE:
                args, kwargs = as_written(func, frame, args, kwargs)
                frame = frame.f_back.f_back if frame.f_back is not None else None
        call = ApiCall(recorder, f"{qualified}.{recorder.number(qualified)}", frame)
        has_grad = torch._C.is_grad_enabled()
        with Quiet():
            call.begin(args, kwargs, has_grad=has_grad, changed=args[0] if qualified == "Tensor.__setitem__" else None)
    except Exception as error:
        recorder.note_error(api.qualified, error)
        return None
    return call


def mirrored(parent: str | None) -> str | None:
    """Return the backward name of the module whose forward name is given."""
    return parent if parent is None or not is_module_name(parent) else backward_of(parent)


def is_recomputed(frame: FrameType | None) -> bool:
    """Tell whether a call is made by activation checkpointing, during the backward pass."""
    if not is_in_backward():
        return False
    while frame is not None:
        code = frame.f_code
        if code.co_filename.endswith("checkpoint.py") and code.co_name in ("recompute_fn", "backward"):
            return True
        frame = frame.f_back
    return False

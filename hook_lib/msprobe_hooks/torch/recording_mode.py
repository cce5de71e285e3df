"""API calls, recorded, and at level aten every operator that reaches a kernel."""

from __future__ import annotations

import sys
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from msprobe_hooks.dump.effects import UNDEFINED_RESULTS
from msprobe_hooks.recording import call_records
from msprobe_hooks.recording.backward import tensors_in
from msprobe_hooks.recording.call_records import ApiCall
from msprobe_hooks.torch import api_lists
from msprobe_hooks.torch.apis import Api, ApiTable
from msprobe_hooks.torch.call_mode import LIBRARY_OPERATORS, OWN_FILES, CallMode, is_of_compiler, is_traced, named
from msprobe_hooks.torch.gradients import PostponedStop, is_in_backward
from msprobe_hooks.torch.recorder import TorchRecorder

if TYPE_CHECKING:
    from msprobe_hooks.torch.collectives import FunctionalCollectives

OWN_FILES |= {__file__, call_records.__file__}

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
# What lies between an operator of a library and the one who calls it.
_BETWEEN = OWN_FILES | {torch._ops.__file__}
_BACKWARD = frozenset({Tensor.backward, torch.autograd.backward, torch.autograd.grad})


class RecordingMode(CallMode):
    """Records the calls of one thread while it is on that thread's stack of modes, ``collectives`` by themselves."""

    def __init__(
        self, recorder: TorchRecorder, apis: ApiTable, collectives: FunctionalCollectives | None = None
    ) -> None:
        super().__init__(apis, frozenset(recorder.settings.custom_op_namespaces))
        self._recorder = recorder
        self._collectives = collectives

    def make(self, api: Api, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        """Make a call, and record it while recording is on and outside of what is recorded as a whole."""
        recorder = self._recorder
        if not recorder.is_recording or recorder.is_suspended:
            return func(*args, **kwargs)
        call = self._begin(api, func, args, kwargs, frame)
        if call is None:
            return func(*args, **kwargs)
        is_undefined = bool(recorder.undefined) and recorder.note_undefined(call, args, kwargs)
        if api.writes:
            func = discarding(func, recorder)
        if is_in_backward():
            with PostponedStop():
                result = call.run(func, args, kwargs)
        else:
            result = call.run(func, args, kwargs)
        if is_undefined:
            recorder.undefined.add(result)
        if api.qualified == "Tensor.numpy":
            with recorder.net(api.qualified):
                recorder.measured.expose(args[0])
        return result

    def note_error(self, where: str, error: Exception) -> None:
        """Count it in the summary."""
        self._recorder.summary.note_error(where, error)

    def note_traced(self) -> None:
        """Count it, in what runs and not in what Dynamo traces."""
        if not torch.compiler.is_dynamo_compiling() and self._recorder.is_recording:
            self._recorder.note_traced()

    def note_unlisted(self, func: Any, result: Any) -> None:
        """Count a call that is in no table and has computed a tensor."""
        if not isinstance(result, Tensor) and not (result and isinstance(result[0], Tensor)):
            return
        recorder = self._recorder
        with recorder.net("a call that msprobe does not record"):
            name = str(func) if type(func) in LIBRARY_OPERATORS else getattr(func, "__name__", "")
            if name in UNDEFINED_RESULTS and recorder.is_recording:
                recorder.undefined.add(result)
            if name in api_lists.IDLE or not recorder.is_recording or recorder.is_suspended or is_traced():
                return
            if not is_of_compiler(_caller(sys._getframe(1))):
                recorder.summary.unrecorded[name] += 1

    def _pass(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func in _EXPOSING and self._recorder.is_recording:
            with self._recorder.net("a call that exposes memory"):
                self._recorder.measured.expose(args[0])
        collectives = self._collectives
        # A compiler cannot trace what asks for the frame.
        if collectives is not None and type(func) in LIBRARY_OPERATORS and not is_traced() and func in collectives:
            return collectives.run(func, args, kwargs, sys._getframe(2))
        result = super()._pass(func, types, args, kwargs)
        if func in _BACKWARD:
            # Data parallelism reduces gradients in place, unseen, before this returns.
            self._recorder.measured.forget()
        return result

    def _begin(self, api: Api, func: Any, args: Any, kwargs: Any, frame: FrameType) -> ApiCall | None:
        recorder = self._recorder
        try:
            qualified, args, kwargs, caller = named(api, func, args, kwargs, frame)
            call = recorder.api_call(f"{qualified}.{recorder.number(qualified)}.forward", caller)
            changed = args[0] if qualified == "Tensor.__setitem__" else None
            written = [args[place] for place in api.written if place < len(args)] if api.written else None
            call.begin(args, kwargs, changed, written)
        except Exception as error:
            self.note_error(api.qualified, error)
            return None
        return call


def _caller(frame: FrameType) -> FrameType:
    """Return the frame of the program that has called an operator."""
    while frame.f_code.co_filename in _BETWEEN and frame.f_back is not None:
        frame = frame.f_back
    return frame


def discarding(func: Any, recorder: TorchRecorder) -> Any:
    """Return a function after which the tensors among its arguments are measured anew, in its result as well."""

    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return func(*args, **kwargs)
        finally:
            with recorder.net("the tensors that a call has written to"):
                for tensor in tensors_in((args, kwargs), Tensor):
                    recorder.measured.discard(tensor)

    return run


class AtenMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the operators of one thread, named ``Aten.{operator}.{overload}``.

    Those that run in a backward pass have forward records of their own; there are no backward records at this level.
    """

    def __init__(self, recorder: TorchRecorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record an operator and run it."""
        kwargs = kwargs or {}
        recorder = self._recorder
        if not recorder.is_recording or func.namespace not in ("aten", "npu"):
            return func(*args, **kwargs)
        if is_traced():
            recorder.note_traced()
            return func(*args, **kwargs)
        qualified = f"Aten.{func.overloadpacket.__name__}.{func._overloadname}"
        call = recorder.api_call(f"{qualified}.{recorder.number(qualified)}.forward", sys._getframe(1))
        call.begin(args, kwargs, has_backward=False)
        is_undefined = bool(recorder.undefined) and recorder.note_undefined(call, args, kwargs)
        # Version counters of what it writes to move after this mode has returned.
        run = discarding(func, recorder) if func._schema.is_mutable else func
        result = call.run(run, args, kwargs)
        if is_undefined or func.overloadpacket.__name__ in UNDEFINED_RESULTS:
            recorder.undefined.add(result)
        return result

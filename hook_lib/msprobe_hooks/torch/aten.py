"""Level aten: every operator that reaches a kernel, seen by a TorchDispatchMode.

Operators that run in a backward pass have forward records of their own; there are no backward records at this level.
"""

from __future__ import annotations

import sys
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from msprobe_hooks.dump.effects import UNDEFINED_RESULTS
from msprobe_hooks.torch.call_mode import is_traced
from msprobe_hooks.torch.recorder import TorchRecorder
from msprobe_hooks.torch.recording_mode import discarding


class AtenMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the operators of one thread, named ``Aten.{operator}.{overload}``."""

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

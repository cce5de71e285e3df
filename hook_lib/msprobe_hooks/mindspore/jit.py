"""Calls of functions that MindSpore compiles (``mindspore.jit``), recorded as wholes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from mindspore.common import api

from msprobe_hooks.mindspore.calls import run_recorded
from msprobe_hooks.mindspore.recorder import MindSporeRecorder
from msprobe_hooks.recording.calls import ApiCall
from msprobe_hooks.recording.session import Observer


class JitCalls:
    """Records calls of compiled functions as ``Jit.{function}``, numbered from 1 as msprobe does.

    While one runs, the recording functions that the other ``observers`` of the session put in place are out of the way
    of the compiler, which would read their source.
    """

    def __init__(self, recorder: MindSporeRecorder, observers: list[Observer]) -> None:
        self._recorder = recorder
        self._observers = observers
        self._former: Callable[..., Any] | None = None

    def begin(self) -> None:
        """Watch the executor of compiled functions."""
        former = self._former = api._JitExecutor.__call__
        recorder = self._recorder

        def call(executor: Any, *args: Any, **kwargs: Any) -> Any:
            if not recorder.is_recording or recorder.is_suspended:
                return former(executor, *args, **kwargs)

            def run(*args: Any, **kwargs: Any) -> Any:
                return self._without_the_others(lambda: former(executor, *args, **kwargs))

            name = f"Jit.{executor.fn.__name__}"
            api_call = ApiCall(recorder, f"{name}.{recorder.number(name) + 1}.forward", sys._getframe(1))
            return run_recorded(api_call, run, args, kwargs)

        api._JitExecutor.__call__ = call

    def end(self) -> None:
        """Leave the executor as it was."""
        api._JitExecutor.__call__ = self._former

    def _without_the_others(self, run: Callable[[], Any]) -> Any:
        others = [observer for observer in self._observers if observer is not self]
        for other in others:
            other.end()
        try:
            return run()
        finally:
            for other in others:
                other.begin()

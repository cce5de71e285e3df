"""Calls of functions that MindSpore compiles (``mindspore.jit``), seen as wholes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeAlias

from mindspore.common import api

from msprobe_hooks.extensions.mindspore.call_recording import Calls, Primitives, Wrap, run_recorded
from msprobe_hooks.extensions.mindspore.qualified_names import place_of
from msprobe_hooks.extensions.mindspore.recorder import MindSporeRecorder
from msprobe_hooks.recording.session import Model, Observer

#: Makes a call of a compiled function: that of the program, what runs it, its arguments, and where it is called.
Make: TypeAlias = Callable[[Callable[..., Any], Callable[..., Any], Any, Any, FrameType], Any]


def recorded(recorder: MindSporeRecorder) -> Make:
    """Return what has compiled calls recorded as ``Jit.{function}``, numbered from 1 as msprobe does."""

    def make(function: Callable[..., Any], run: Callable[..., Any], args: Any, kwargs: Any, frame: FrameType) -> Any:
        if not recorder.is_recording or recorder.is_suspended:
            return run(*args, **kwargs)
        # What is compiled may be any callable, which has no name and no place.
        name = f"Jit.{getattr(function, '__name__', type(function).__name__)}"
        call = recorder.api_call(f"{name}.{recorder.number(name) + 1}.forward", frame)
        settings = None
        with recorder.net(name):
            settings = {"function": place_of(function)}
        return run_recorded(call, run, args, kwargs, settings=settings)

    return make


def unrecorded(_: Callable[..., Any], run: Callable[..., Any], args: Any, kwargs: Any, __: FrameType) -> Any:
    """Make a call."""
    return run(*args, **kwargs)


def observers(wrap: Wrap, make: Make, model: Model | None) -> list[Observer]:
    """Return what puts functions of ``wrap`` in the place of others and has compiled ones made by ``make``.

    Primitives are those that the cells of a ``model`` hold.
    """
    seen: list[Observer] = [Calls(wrap)]
    if model is not None:
        seen.append(Primitives(wrap, model))
    return [*seen, JitCalls(make, seen)]


class JitCalls:
    """Has calls of compiled functions made by ``make``.

    While one runs, the functions that the other ``observers`` put in place are out of the way of the compiler, which
    would read their source.
    """

    def __init__(self, make: Make, observers: list[Observer]) -> None:
        self._make = make
        self._observers = observers
        self._former: Callable[..., Any] | None = None
        self._is_one_running = False

    def begin(self) -> None:
        """Watch the executor of compiled functions."""
        former = self._former = api._JitExecutor.__call__

        def call(executor: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_one_running:
                return former(executor, *args, **kwargs)

            def run(*args: Any, **kwargs: Any) -> Any:
                return self._without_the_others(lambda: former(executor, *args, **kwargs))

            return self._make(executor.fn, run, args, kwargs, sys._getframe(1))

        api._JitExecutor.__call__ = call

    def end(self) -> None:
        """Leave the executor as it was."""
        if self._former is not None:
            api._JitExecutor.__call__ = self._former
            self._former = None

    def _without_the_others(self, run: Callable[[], Any]) -> Any:
        others = [observer for observer in self._observers if observer is not self]
        self._is_one_running = True
        for other in others:
            other.end()
        try:
            return run()
        finally:
            for other in others:
                other.begin()
            self._is_one_running = False

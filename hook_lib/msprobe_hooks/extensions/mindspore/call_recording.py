"""Calls of MindSpore's functions, seen by functions in their place; compiled ones (``mindspore.jit``) as wholes."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, TypeAlias

from mindspore import nn
from mindspore._c_expression import typing as dtypes
from mindspore.common import api
from mindspore.common.api import _pynative_executor
from mindspore.ops import Primitive

from msprobe_hooks.dump.writer import json_number
from msprobe_hooks.extensions.mindspore.apis import LAYERS, functions
from msprobe_hooks.extensions.mindspore.recorder import MindSporeRecorder
from msprobe_hooks.recording.call_records import ApiCall
from msprobe_hooks.recording.session import Model, Observer

#: Returns what is put in the place of a function, by the name that its calls are recorded under.
Wrap: TypeAlias = Callable[[Callable[..., Any], str], Callable[..., Any]]

#: Makes a call of a compiled function: that of the program, what runs it, its arguments, and where it is called.
Make: TypeAlias = Callable[[Callable[..., Any], Callable[..., Any], Any, Any, FrameType], Any]


class Calls:
    """Puts other functions in place of those of the table between ``begin`` and ``end``.

    Names that a program bound before (``from mindspore.mint import matmul``) stay what they were.
    """

    def __init__(self, wrap: Wrap, table: Callable[[], Iterable[tuple[Any, str, str]]] = functions) -> None:
        self._wrap = wrap
        self._table = table
        self._replaced: list[tuple[Any, str, Any]] = []

    def begin(self) -> None:
        """Replace."""
        for owner, attribute, qualified in self._table():
            # Methods are inherited from a class of C++; what is not the class's own is removed again, not set back.
            self._replaced.append((owner, attribute, vars(owner).get(attribute)))
            setattr(owner, attribute, self._wrap(getattr(owner, attribute), qualified))

    def end(self) -> None:
        """Restore everything."""
        while self._replaced:
            owner, attribute, own = self._replaced.pop()
            if own is None:
                delattr(owner, attribute)
            else:
                setattr(owner, attribute, own)


class Primitives:
    """Puts functions in place of the primitives that cells hold, which are ``Primitive.{attribute}.{Class}``."""

    def __init__(self, wrap: Wrap, model: Model) -> None:
        self._wrap = wrap
        models = [model] if isinstance(model, nn.Cell) else model
        self._cells = [cell for one in models for _, cell in one.cells_and_names()]
        self._replaced: list[tuple[nn.Cell, str, Primitive]] = []

    def begin(self) -> None:
        """Replace."""
        for cell in self._cells:
            for attribute, primitive in cell._primitives.items():
                qualified = f"Primitive.{attribute}.{type(primitive).__name__}"
                # A cell's own way of setting attributes would make it another kind of attribute.
                object.__setattr__(cell, attribute, self._wrap(primitive, qualified))
                self._replaced.append((cell, attribute, primitive))

    def end(self) -> None:
        """Restore everything."""
        while self._replaced:
            cell, attribute, primitive = self._replaced.pop()
            object.__setattr__(cell, attribute, primitive)


def recording(recorder: MindSporeRecorder) -> Wrap:
    """Return what makes functions that do what others do and have the call recorded."""

    def wrap(function: Callable[..., Any], qualified: str) -> Callable[..., Any]:
        settings = _settings(recorder, qualified, function) if isinstance(function, Primitive) else None

        @functools.wraps(function, updated=())
        def call(*args: Any, **kwargs: Any) -> Any:
            if not recorder.is_recording or recorder.is_suspended:
                return function(*args, **kwargs)
            name = f"{qualified}.{recorder.number(qualified)}.forward"
            return run_recorded(recorder.api_call(name, sys._getframe(1)), function, args, kwargs, settings=settings)

        return call

    return wrap


def recording_layers(recorder: MindSporeRecorder) -> Wrap:
    """Return what makes methods of primitives that do what others do and have the call recorded with its settings.

    Recorded of their results are those that a program may use: memory that a gradient's kernel needs holds anything.
    """

    def wrap(method: Callable[..., Any], qualified: str) -> Callable[..., Any]:
        count = LAYERS[qualified.rpartition(".")[2]]

        @functools.wraps(method, updated=())
        def call(primitive: Primitive, *args: Any) -> Any:
            if not recorder.is_recording or recorder.is_suspended:
                return method(primitive, *args)
            workspace: list[Any] = []

            def run(*args: Any) -> Any:
                results = method(primitive, *args)
                workspace[:] = results[count:]
                return results[:count]

            name = f"{qualified}.{recorder.number(qualified)}.forward"
            begun = recorder.api_call(name, sys._getframe(1))
            settings = _settings(recorder, qualified, primitive)
            return (*run_recorded(begun, run, args, {}, settings=settings), *workspace)

        return call

    return wrap


def _settings(recorder: MindSporeRecorder, qualified: str, primitive: Primitive) -> dict[str, Any] | None:
    with recorder.net(f"the attributes of {qualified}"):
        return settings_of(primitive)
    return None


def run_recorded(call: ApiCall, function: Callable[..., Any], args: Any, kwargs: Any, **options: Any) -> Any:
    """Make a call and have it recorded; what it calls inside is not recorded again. ``options`` are for its begin."""
    call.begin(args, kwargs, **options)
    return call.run_as_a_whole(Finishing(function), args, kwargs)


class Finishing:
    """A function that returns when its kernels have run.

    What one raises then belongs to this call, and to the program rather than to who measures.
    """

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it and wait."""
        result = self.function(*args, **kwargs)
        _pynative_executor.sync()
        return result


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
    calls: list[Observer] = [Calls(wrap)]
    if model is not None:
        calls.append(Primitives(wrap, model))
    return [*calls, JitCalls(make, calls)]


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


def settings_of(primitive: Primitive) -> dict[str, Any]:
    """Return the arguments of a primitive's constructor by name, as JSON has them.

    A dtype is an element as among arguments; of what JSON has no word for there is the type.
    """
    return {name: _plain(value) for name, value in primitive.init_attrs.items() if name != "name"}


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return json_number(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, dtypes.Type):
        return {"type": "mindspore.dtype", "value": str(value)}
    return {"type": f"{type(value).__module__}.{type(value).__qualname__}"}


def place_of(function: Callable[..., Any]) -> str:
    """Return where a function is: ``package.module:Class.method``."""
    module = sys.modules.get(function.__module__)
    return f"{function.__module__ if module is None else imported_as(module)}:{function.__qualname__}"


def imported_as(module: ModuleType) -> str:
    """Return the name by which a module is imported, of the script that runs as well."""
    if module.__name__ != "__main__":
        return module.__name__
    if module.__spec__ is not None:
        return module.__spec__.name
    file = getattr(module, "__file__", None)
    return Path(file).stem if file else module.__name__

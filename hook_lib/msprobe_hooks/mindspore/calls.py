"""API calls, seen by functions put in the place of MindSpore's while recording is on."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any

from mindspore import nn
from mindspore.common.api import _pynative_executor
from mindspore.ops import Primitive

from msprobe_hooks.mindspore.apis import functions
from msprobe_hooks.mindspore.recorder import MindSporeRecorder
from msprobe_hooks.recording.calls import ApiCall


class Calls:
    """Puts recording functions in place of those of the table between ``begin`` and ``end``.

    Names that a program bound before (``from mindspore.mint import matmul``) stay what they were.
    """

    def __init__(
        self, recorder: MindSporeRecorder, table: Callable[[], Iterable[tuple[Any, str, str]]] = functions
    ) -> None:
        self._recorder = recorder
        self._table = table
        self._replaced: list[tuple[Any, str, Any]] = []

    def begin(self) -> None:
        """Replace."""
        for owner, attribute, qualified in self._table():
            # Methods are inherited from a class of C++; what is not the class's own is removed again, not set back.
            self._replaced.append((owner, attribute, vars(owner).get(attribute)))
            setattr(owner, attribute, recording(self._recorder, getattr(owner, attribute), qualified))

    def end(self) -> None:
        """Put everything back."""
        while self._replaced:
            owner, attribute, own = self._replaced.pop()
            if own is None:
                delattr(owner, attribute)
            else:
                setattr(owner, attribute, own)


class Primitives:
    """Records the primitives that cells hold as attributes, as ``Primitive.{attribute}.{Class}``."""

    def __init__(self, recorder: MindSporeRecorder, cells: list[nn.Cell]) -> None:
        self._recorder = recorder
        self._cells = cells
        self._replaced: list[tuple[nn.Cell, str, Primitive]] = []

    def begin(self) -> None:
        """Replace."""
        for cell in self._cells:
            for attribute, primitive in cell._primitives.items():
                qualified = f"Primitive.{attribute}.{type(primitive).__name__}"
                # A cell's own way of setting attributes would make it another kind of attribute.
                object.__setattr__(cell, attribute, recording(self._recorder, primitive, qualified))
                self._replaced.append((cell, attribute, primitive))

    def end(self) -> None:
        """Put everything back."""
        while self._replaced:
            cell, attribute, primitive = self._replaced.pop()
            object.__setattr__(cell, attribute, primitive)


def recording(recorder: MindSporeRecorder, function: Callable[..., Any], qualified: str) -> Callable[..., Any]:
    """Return a function that does what ``function`` does and has the call recorded."""

    @functools.wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        if not recorder.is_recording or recorder.is_suspended:
            return function(*args, **kwargs)
        api_call = ApiCall(recorder, f"{qualified}.{recorder.number(qualified)}.forward", sys._getframe(1))
        return run_recorded(api_call, function, args, kwargs)

    return call


def run_recorded(call: ApiCall, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Make a call and have it recorded; what it calls inside is not recorded again."""

    def run(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        # Kernels run later: what one raises belongs to this call, and to the program rather than to who measures.
        _pynative_executor.sync()
        return result

    call.begin(args, kwargs)
    return call.run_as_a_whole(run, args, kwargs)

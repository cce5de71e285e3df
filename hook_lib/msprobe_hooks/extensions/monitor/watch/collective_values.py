"""Collective communication: what a process gives to it and what it gets, all calls of a step together.

The functions of `torch.distributed` are the process's, so every training that is watched sees all calls. What C++ sends
by itself, as the reduction of DistributedDataParallel, passes through none of them.
"""

from __future__ import annotations

import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

from torch import Tensor

from msprobe_hooks.dump.unread.effects import RECEIVED
from msprobe_hooks.extensions.monitor.watch import config
from msprobe_hooks.extensions.monitor.watch.error_log import Errors
from msprobe_hooks.extensions.monitor.watch.step_statistics import Collection
from msprobe_hooks.recording.interposition import Around
from msprobe_hooks.torch.collective_hooks import CollectiveHooks

_log = logging.getLogger("msprobe_hooks")

# Asynchronous calls that are never waited for in Python are forgotten when there are more.
_MOST_WAITING = 1000


class Collectives:
    """Measures what the collectives take and give that are called from lines of interest."""

    def __init__(self, collection: Collection, wanted: config.Collectives) -> None:
        self._wanted = wanted
        self._lines = [re.compile(line) for line in wanted.codelines]
        self._stacks: Counter[tuple[str, str]] = Counter()
        self._collection = collection
        self.before = collection.harmless("a collective", self._before)
        self.after = collection.harmless("a collective", self._after)
        _calls.listen(self)

    def end_step(self) -> None:
        """Log the stacks where these are all that is wanted."""
        stacks, self._stacks = self._stacks, Counter()
        for (name, stack), count in stacks.items():
            _log.info("%s, called %d times: %s", name, count, stack)

    def remove(self) -> None:
        """Stop listening."""
        _calls.leave(self)

    def _before(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], stack: Sequence[str]) -> None:
        if not self._is_of_interest(stack):
            return
        if self._wanted.only_stacks:
            self._stacks[name, "; ".join(stack)] += 1
        elif self._wanted.before:
            # Buffers that are to be filled hold nothing yet.
            received = RECEIVED.get(name, ())
            given = [value for place, value in enumerate(args) if str(place) not in received]
            named = [value for key, value in kwargs.items() if key not in received]
            self._measure(f"{name}/pre", [*given, *named])

    def _after(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], stack: Sequence[str]) -> None:
        if not self._wanted.only_stacks and self._is_of_interest(stack):
            self._measure(f"{name}/post", [*args, *kwargs.values()])

    def _is_of_interest(self, stack: Sequence[str]) -> bool:
        return not self._lines or any(one.search(line) for line in stack for one in self._lines)

    def _measure(self, name: str, values: list[Any]) -> None:
        tensors = list(_tensors_in(values))
        names = [f"{name}_{place}" for place in range(len(tensors))]
        self._collection.measure_again("other", names, tensors)


class _Calls:
    """The hooks that all listeners share; there are none without listeners."""

    def __init__(self) -> None:
        self._listeners: list[Collectives] = []
        self._hooks: CollectiveHooks[Callable[[], None]] = CollectiveHooks(
            self._around, lambda finish: finish(), _warn_of_refused, _MOST_WAITING
        )
        self._is_inside = False
        self._kept = Errors().kept_from("collectives")

    def listen(self, listener: Collectives) -> None:
        if not self._listeners:
            self._hooks.begin()
        self._listeners.append(listener)

    def leave(self, listener: Collectives) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)
            if not self._listeners:
                self._hooks.end()

    def _around(self, name: str) -> Around:
        def around(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            if self._is_inside:
                return function(*args, **kwargs)
            stack: list[str] = []
            with self._kept:
                # In words at once: an asynchronous call's frames move on until it is waited for.
                stack += _lines(sys._getframe(2))
            for listener in list(self._listeners):
                listener.before(name, args, kwargs, stack)
            self._is_inside = True
            try:
                result = function(*args, **kwargs)
            finally:
                self._is_inside = False

            def finish() -> None:
                for listener in list(self._listeners):
                    listener.after(name, args, kwargs, stack)

            with self._kept:
                self._hooks.returned(result, finish)
            return result

        return around


def _warn_of_refused(name: str, error: TypeError) -> None:
    _log.warning("torch.distributed.%s is not monitored: %s", name, error)


_calls = _Calls()


def _lines(frame: FrameType | None) -> Iterator[str]:
    """Yield where a call was made, from the innermost frame out, as ``file[line]``."""
    while frame is not None:
        yield f"{frame.f_code.co_filename}[{frame.f_lineno}]"
        frame = frame.f_back


def _tensors_in(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _tensors_in(value)
        else:
            # A point-to-point operation of a batch has its tensor inside.
            tensor = value if isinstance(value, Tensor) else getattr(value, "tensor", None)
            if isinstance(tensor, Tensor):
                yield tensor

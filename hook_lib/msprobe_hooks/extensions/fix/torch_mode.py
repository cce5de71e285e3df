"""Calls of PyTorch, seen, named and counted as a recording does, to be fixed or only listed."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import torch.distributed as dist

from msprobe_hooks.extensions.fix.run_plan import (
    DRAWS,
    UNNAMED_LIBRARY,
    Fixed,
    library_of,
    not_looked_at,
    require_computation,
)
from msprobe_hooks.extensions.fix.torch_upcast import Plan, Raising, returns_floats
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.safety_net import SafetyNet, abandon_in_children
from msprobe_hooks.recording.session import Observer
from msprobe_hooks.recording.upcasts import NothingToRaiseError, Precision, UnraisedError
from msprobe_hooks.torch.apis import Api, api_table
from msprobe_hooks.torch.call_mode import OWN_FILES, CallMode, NewThreads, ThisThread, named
from msprobe_hooks.torch.generators import Generators
from msprobe_hooks.torch.gradients import running_checkpoint


class Checkpoints:
    """Has what was decided of the calls in a checkpoint decided again in the same order when they are made again."""

    def __init__(self) -> None:
        self._decided: WeakKeyDictionary[object, list[bool]] = WeakKeyDictionary()
        self._again: WeakKeyDictionary[object, Counter[Hashable]] = WeakKeyDictionary()

    def decide(self, decide: Callable[[], bool]) -> bool:
        """Return what ``decide`` says of the call that is being made, or said of it when it was made first."""
        running = running_checkpoint()
        if running is None:
            return decide()
        decided = self._decided.setdefault(running.frame, [])
        if running.backward_pass is None:
            decided.append(decide())
            return decided[-1]
        again = self._again.setdefault(running.frame, Counter())
        place = again[running.backward_pass]
        again[running.backward_pass] += 1
        return place < len(decided) and decided[place]


OWN_FILES.add(__file__)


# In another dtype a collective would wait for ranks that send the first one.
_COMMUNICATING = frozenset({"c10d", "_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "symm_mem"})


class CountingMode(CallMode):
    """Counts the calls of this process, of all its threads together, and of no process that is forked off.

    Operators of other libraries can be raised where they are in ``namespaces``.
    """

    def __init__(self, to: Precision, fixed: Fixed, namespaces: Iterable[str] = ()) -> None:
        super().__init__(api_table(), frozenset({*Settings().custom_op_namespaces, *namespaces}))
        self.raising = Raising(to)
        self.fixed = fixed
        self._collectives = _Collectives(self.note_error)
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._is_abandoned = False
        abandon_in_children(self)

    @abstractmethod
    def make_named(
        self, qualified: str, number: int, frame: FrameType | None, plan: Callable[[], Plan], run: Callable[[], Any]
    ) -> Any:
        """Make a call and return its result: ``plan`` returns how to raise it, ``run`` makes it as it is.

        ``plan`` raises UnraisedError where that is not possible.
        """

    def make(self, api: Api, func: Any, args: Any, kwargs: Any, frame: FrameType) -> Any:
        """Name and count a call, and have it made; those that a collective makes inside are not recorded."""
        if self._collectives.are_running or self._is_abandoned:
            return func(*args, **kwargs)
        try:
            qualified, _, _, caller = named(api, func, args, kwargs, frame)
        except Exception as error:
            self.note_error(api.qualified, error)
            return func(*args, **kwargs)
        with self._lock:
            number = self._counts[qualified]
            self._counts[qualified] += 1
        return self.make_named(
            qualified,
            number,
            caller,
            lambda: self._plan(qualified, api, func, args, kwargs),
            lambda: func(*args, **kwargs),
        )

    def sees_library(self, namespace: str) -> bool:
        """Return True but for communication, so that operators that were not asked for are counted as left."""
        return namespace not in _COMMUNICATING or super().sees_library(namespace)

    def _plan(self, qualified: str, api: Api, func: Any, args: Any, kwargs: Any) -> Plan:
        try:
            require_computation(qualified)
            plan = self.raising.plan(func, args, kwargs, writes=api.writes)
        except UnraisedError:
            raise
        except Exception as error:
            raise UnraisedError(not_looked_at(error)) from error
        library = library_of(qualified)
        if library is not None and library not in self.namespaces:
            raise UnraisedError(UNNAMED_LIBRARY)
        return plan

    def note_error(self, where: str, error: Exception) -> None:
        """Count a call that ran as it was, because nothing can be said about it."""
        self.fixed.leave(where, UnraisedError(not_looked_at(error)))

    def abandon(self) -> None:
        """Leave the calls of a forked child alone."""
        self._is_abandoned = True

    def observers(self) -> list[Observer]:
        """Return what puts this mode on the threads of the process between ``begin`` and ``end``."""
        return [ThisThread(self), NewThreads(self), *([self._collectives] if dist.is_available() else [])]


class FixingMode(CountingMode):
    """Makes the calls that are wanted in another precision; ``wanted`` is asked with API, number and frame."""

    def __init__(
        self,
        to: Precision,
        wanted: Callable[[str, int, FrameType | None], bool],
        fixed: Fixed,
        namespaces: Iterable[str] = (),
    ) -> None:
        super().__init__(to, fixed, namespaces)
        self._wanted = wanted
        self._checkpoints = Checkpoints()

    def make_named(
        self, qualified: str, number: int, frame: FrameType | None, plan: Callable[[], Plan], run: Callable[[], Any]
    ) -> Any:
        """Make a call, raised where it is wanted and can be."""
        is_wanted = False
        with SafetyNet(self.note_error, qualified):
            is_wanted = self._checkpoints.decide(lambda: self._wanted(qualified, number, frame))
        if not is_wanted:
            return run()
        return self.fixed.make(qualified, lambda: self.raising.make(plan()), run)


class ListingMode(CountingMode):
    """Makes every call as it is, and lists those that fixing would change, by API and number.

    Those that it would leave as they are for another reason than that nothing would change are counted in ``fixed``.
    """

    def __init__(
        self, to: Precision, report: Callable[[str, int], None], fixed: Fixed, namespaces: Iterable[str] = ()
    ) -> None:
        super().__init__(to, fixed, namespaces)
        self._report = report

    def make_named(
        self, qualified: str, number: int, frame: FrameType | None, plan: Callable[[], Plan], run: Callable[[], Any]
    ) -> Any:
        """Make a call, and list it where it can be raised; one that is made again goes with the first."""
        planned: Plan | UnraisedError | None = None
        generators = None
        with SafetyNet(self.note_error, qualified):
            checkpoint = running_checkpoint()
            if checkpoint is None or checkpoint.backward_pass is None:
                planned = _planned(plan)
                generators = Generators(planned.leaves) if isinstance(planned, Plan) else None
        result = run()
        with SafetyNet(self.note_error, qualified):
            if isinstance(planned, UnraisedError):
                if not isinstance(planned, NothingToRaiseError) and returns_floats(result):
                    self.fixed.leave(qualified, planned)
            elif generators is not None and generators.have_moved():
                self.fixed.leave(qualified, UnraisedError(DRAWS))
            elif generators is not None:
                self._report(qualified, number)
        return result


def _planned(plan: Callable[[], Plan]) -> Plan | UnraisedError:
    try:
        return plan()
    except UnraisedError as reason:
        # Its traceback would keep the tensors of its frames while the call runs.
        return type(reason)(str(reason))


class _Collectives(threading.local):
    """Knows which threads are in a collective, between ``begin`` and ``end``."""

    are_running = False

    def __init__(self, refused: Callable[[str, TypeError], None]) -> None:
        self._refused = refused
        self._hooks: Any = None

    def begin(self) -> None:
        """Watch the functions."""
        # torch.distributed is absent from some builds.
        from msprobe_hooks.torch.collective_hooks import CollectiveHooks

        self._hooks = CollectiveHooks[None](lambda _: self._around, lambda _: None, self._refused)
        self._hooks.begin()

    def end(self) -> None:
        """Stop watching."""
        self._hooks.end()

    def _around(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        was, self.are_running = self.are_running, True
        try:
            return function(*args, **kwargs)
        finally:
            self.are_running = was

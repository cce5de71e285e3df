"""Hooks on collectives of `torch.distributed`; an asynchronous one is done when it has been waited for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from msprobe_hooks.recording.interposition import Around, Interposition
from msprobe_hooks.torch import api_lists

Call = TypeVar("Call")

_COALESCING = "_coalescing_manager"


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[Call]):
    """Calls that are over when all of ``works``, here by identity, have been waited for, in whatever order."""

    works: dict[int, Any]
    calls: list[Call]


class CollectiveHooks(Generic[Call]):
    """Has ``around(name)`` run in place of each collective, between ``begin`` and ``end``.

    What it runs says by `returned` what belongs to a call, and ``done`` gets that once the call is over. ``refused``
    is called with functions that cannot be wrapped. Of more than ``most_waiting`` calls the oldest is forgotten.
    ``also`` are functions that msprobe does not record; ``failed`` gets what waiting raised in place of ``done``.

    What is called inside of ``_coalescing_manager`` is made when that is left.
    """

    def __init__(
        self,
        around: Callable[[str], Around],
        done: Callable[[Call], None],
        refused: Callable[[str, TypeError], None],
        most_waiting: int | None = None,
        also: Collection[str] = (),
        failed: Callable[[Call, BaseException], None] | None = None,
    ) -> None:
        self._around = around
        self._done = done
        self._refused = refused
        self._most_waiting = most_waiting
        self._failed = failed
        self._names = sorted(api_lists.DISTRIBUTED.union(also))
        self._interposed: list[Interposition] = []
        # By the identity of each work.
        self._waiting: dict[int, _Waiting[Call]] = {}
        self._coalesced: list[Call] | None = None
        self._wait: Any = None

    def begin(self) -> None:
        """Watch the functions and the class whose ``wait`` ends an asynchronous call."""
        for name in self._names:
            self._interpose(name, self._around(name))
        self._interpose(_COALESCING, self._around_coalescing)
        self._wait = wait = dist.Work.wait

        def wait_and_report(work: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                result = wait(work, *args, **kwargs)
            except BaseException as error:
                self._fail_all(work, error)
                raise
            waiting = self._waiting.pop(id(work), None)
            if waiting is not None:
                waiting.works.pop(id(work), None)
                if not waiting.works:
                    self._end_all(waiting.calls)
            return result

        dist.Work.wait = wait_and_report  # type: ignore[method-assign, assignment]

    def returned(self, result: Any, call: Call) -> bool:
        """Take what a collective returned: the call is over, or will be when that has been waited for.

        Returns whether it is still to be waited for.
        """
        if self._coalesced is not None:
            self._coalesced.append(call)
            return True
        return self._wait_for(result, [call])

    def _wait_for(self, result: Any, calls: list[Call]) -> bool:
        works = [work for work in (result if isinstance(result, list) else [result]) if hasattr(work, "wait")]
        if not works:
            self._end_all(calls)
            return False
        waiting = _Waiting({id(work): work for work in works}, calls)
        self._waiting.update(dict.fromkeys(waiting.works, waiting))
        if self._most_waiting is not None and len(self._waiting) > self._most_waiting:
            self._forget(next(iter(self._waiting.values())))
        return True

    def _forget(self, waiting: _Waiting[Call]) -> None:
        for work in waiting.works:
            # A work that came back from two calls belongs to the later one.
            if self._waiting.get(work) is waiting:
                del self._waiting[work]

    def _end_all(self, calls: list[Call]) -> None:
        for call in calls:
            self._done(call)

    def _fail_all(self, work: Any, error: BaseException) -> None:
        if self._failed is not None and id(work) in self._waiting:
            waiting = self._waiting[id(work)]
            self._forget(waiting)
            for call in waiting.calls:
                self._failed(call, error)

    def _interpose(self, name: str, around: Around) -> None:
        function = getattr(c10d, name, None)
        if function is None:
            return
        try:
            self._interposed.append(Interposition(function, around))
        except TypeError as error:
            self._refused(name, error)

    def _around_coalescing(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Generator[Any, None, None]:
        return self._coalescing(function(*args, **kwargs))

    def _coalescing(self, entered: Generator[Any, None, None]) -> Generator[Any, None, None]:
        """Do as ``_coalescing_manager`` does, and take what it returns for all calls inside of it."""
        calls = self._coalesced = []
        try:
            manager = next(entered)
            try:
                yield manager
            except BaseException as error:
                entered.throw(error)
                raise
            next(entered, None)
        finally:
            self._coalesced = None
        self._wait_for(manager.works, calls)

    def end(self) -> list[Call]:
        """Stop watching; return what belongs to calls that were not waited for. A second time does nothing."""
        for interposed in self._interposed:
            interposed.remove()
        self._interposed.clear()
        if self._wait is not None:
            dist.Work.wait = self._wait  # type: ignore[method-assign]
            self._wait = None
        # Of several works of one call each has its entry.
        waiting, self._waiting = {id(one): one for one in self._waiting.values()}, {}
        return [call for one in waiting.values() for call in one.calls]

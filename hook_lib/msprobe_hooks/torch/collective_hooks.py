"""Something around the collectives of `torch.distributed`; an asynchronous one is done when it has been waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from msprobe_hooks.torch import api_lists
from msprobe_hooks.torch.interposition import Around, Interposition

Call = TypeVar("Call")


class CollectiveHooks(Generic[Call]):
    """Has ``around(name)`` run in place of each collective, between ``begin`` and ``end``.

    What it runs says by `returned` what belongs to a call, and ``done`` gets that once the call is over. ``refused``
    is told of functions that nothing can be put around. Of more than ``most_waiting`` calls the oldest is forgotten.
    """

    def __init__(
        self,
        around: Callable[[str], Around],
        done: Callable[[Call], None],
        refused: Callable[[str, TypeError], None],
        most_waiting: int | None = None,
    ) -> None:
        self._around = around
        self._done = done
        self._refused = refused
        self._most_waiting = most_waiting
        self._interposed: list[Interposition] = []
        self._waiting: dict[int, tuple[Any, Call]] = {}
        self._wait: Any = None

    def begin(self) -> None:
        """Watch the functions and the class whose ``wait`` ends an asynchronous call."""
        for name in sorted(api_lists.DISTRIBUTED):
            function = getattr(c10d, name, None)
            if function is None:
                continue
            try:
                self._interposed.append(Interposition(function, self._around(name)))
            except TypeError as error:
                self._refused(name, error)
        self._wait = wait = dist.Work.wait

        def wait_and_tell(work: Any, *args: Any, **kwargs: Any) -> Any:
            result = wait(work, *args, **kwargs)
            if id(work) in self._waiting:
                _, call = self._waiting.pop(id(work))
                self._done(call)
            return result

        dist.Work.wait = wait_and_tell  # type: ignore[method-assign, assignment]

    def returned(self, result: Any, call: Call) -> None:
        """Take what a collective returned: the call is over, or will be when that has been waited for."""
        works = [work for work in (result if isinstance(result, list) else [result]) if hasattr(work, "wait")]
        if not works:
            self._done(call)
            return
        self._waiting[id(works[-1])] = (works[-1], call)
        if self._most_waiting is not None and len(self._waiting) > self._most_waiting:
            del self._waiting[next(iter(self._waiting))]

    def end(self) -> list[Call]:
        """Stop watching; return what belongs to calls that nobody waited for."""
        for interposed in self._interposed:
            interposed.remove()
        self._interposed.clear()
        dist.Work.wait = self._wait  # type: ignore[method-assign]
        waiting, self._waiting = self._waiting, {}
        return [call for _, call in waiting.values()]

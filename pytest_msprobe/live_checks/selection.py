"""Which of a training's calls are checked: a sample, few that are alike, and no more than there is time for."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import Any


def signature(name: str, modes: Hashable, args: Any, kwargs: Any, looks: Callable[[Any], Hashable | None]) -> Hashable:
    """Return what calls share that are alike: the API, the modes, the inputs but for the values of tensors and floats.

    ``name`` is that of the forward record; ``looks`` returns what a framework sees of a value of its own, else None.
    """

    def form(value: Any) -> Any:
        found = looks(value)
        if found is not None:
            return found
        if isinstance(value, (list, tuple)):
            return tuple(map(form, value))
        if isinstance(value, Mapping):
            return tuple((str(key), form(item)) for key, item in value.items())
        return value if isinstance(value, (int, str)) else type(value)

    return name.rsplit(".", 2)[0], modes, form(args), form(kwargs)


_NO_TIME = "no time left (share)"


class Budget:
    """The time that checks may take: at most a ``share`` of what the training itself takes; None for all they need.

    What a check of a kind will take is what the last one took. ``spent`` is in seconds.
    """

    def __init__(self, share: float | None, clock: Callable[[], float] = time.perf_counter) -> None:
        self.spent = 0.0
        self._share = share
        self._clock = clock
        self._began = clock()
        self._costs: dict[Hashable, float] = {}

    def allows(self, kind: Hashable = None) -> bool:
        """Tell whether there is time for a check of this kind; without one, whether there is time at all."""
        if self._share is None:
            return True
        of_training = self._clock() - self._began - self.spent
        return self.spent + self._costs.get(kind, 0.0) <= self._share * of_training

    def spending(self, kind: Hashable = None) -> _Spending:
        """Return a context whose time is counted, as that of a check of this kind if one is given."""
        return _Spending(self, kind)

    def note(self, seconds: float, kind: Hashable) -> None:
        """Count time."""
        self.spent += seconds
        if kind is not None:
            self._costs[kind] = seconds

    def now(self) -> float:
        """Return the time in seconds."""
        return self._clock()


class _Spending:
    # Entered at every call, so that a generator would cost what it is to measure.
    __slots__ = ("_began", "_budget", "_kind")

    def __init__(self, budget: Budget, kind: Hashable) -> None:
        self._budget = budget
        self._kind = kind

    def __enter__(self) -> None:
        self._began = self._budget.now()

    def __exit__(self, *_: object) -> None:
        self._budget.note(self._budget.now() - self._began, self._kind)


class Selection:
    """Says of each call whether it is checked, and counts by reason those that are not."""

    def __init__(self, sample: float, per_api: int | None, budget: Budget, seed: int) -> None:
        self.left_out: Counter[str] = Counter()
        self._sample = sample
        self._per_api = per_api
        self._budget = budget
        self._taken: Counter[Hashable] = Counter()
        # Not the generator of the training, nor one that another run would draw otherwise from.
        self._random = random.Random(seed)

    def has_time(self) -> bool:
        """Tell whether there is time for any check."""
        return self._budget.allows() or self.leave_out(_NO_TIME)

    def takes(self, kind: Hashable) -> bool:
        """Tell whether a call with this signature is checked."""
        if self._per_api is not None and self._taken[kind] >= self._per_api:
            return self.leave_out(f"like {self._per_api} that were checked (per_api)")
        if self._sample < 1 and self._random.random() >= self._sample:
            return self.leave_out("not in the sample (sample)")
        if not self._budget.allows(kind):
            return self.leave_out(_NO_TIME)
        self._taken[kind] += 1
        return True

    def leave_out(self, reason: str) -> bool:
        """Count a call, or its gradients, as not checked, and return False."""
        self.left_out[reason] += 1
        return False

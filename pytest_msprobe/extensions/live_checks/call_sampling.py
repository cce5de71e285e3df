"""Which of a training's calls are checked: a sample, few that are alike, or as many as there is time for."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from msprobe_hooks.dump.names import Direction, backward_of
from pytest_msprobe.extensions.live_checks.budget import Budget
from pytest_msprobe.extensions.live_checks.scheduling import NO_TIME, ApiTurns, Kind, Order, Quota, Rotation, Turns


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

    return _api_of(name), modes, form(args), form(kwargs)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A call that is checked: its result, its gradients, or both."""

    kind: Kind
    forward: bool
    backward: bool


@dataclass(frozen=True, slots=True)
class NeverJudged:
    """Kinds of calls to one API that have no verdict in one direction: so many of those that were ``seen``.

    ``record`` and ``step`` are those of the first one. ``has_row`` says that a result has the reason.
    """

    api: str
    direction: Direction
    record: str
    step: int
    kinds: int
    seen: int
    has_row: bool

    @property
    def some_of_all(self) -> str:
        """How many kinds these are, where other kinds were judged."""
        return f"{self.kinds} of {self.seen} kinds" if self.kinds < self.seen else ""

    def __str__(self) -> str:
        return f"{self.api} {self.direction}" + (f" ({self.some_of_all})" if self.some_of_all else "")


class Selection:
    """Says of each call whether it is checked, and counts by reason those that are not."""

    def __init__(self, sample: float, per_api: int | None, budget: Budget, seed: int) -> None:
        self.left_out: Counter[str] = Counter()
        self._sample = sample
        self._budget = budget
        self._order: Order = Quota(per_api) if budget.share is None else Rotation(budget)
        self._kinds: dict[Hashable, Kind] = {}
        self._apis: dict[tuple[str, Direction], ApiTurns] = {}
        #: The first record of each API that was called, though there may have been no time to look at its calls.
        self._called: dict[str, tuple[str, int]] = {}
        # Not the generator of the training, nor one that another run would draw otherwise from.
        self._random = random.Random(seed)

    def has_time(self, name: str, step: int) -> bool:
        """Return whether there is time to look at a call; ``name`` is that of its forward record."""
        api = _api_of(name)
        if api not in self._called:
            self._called[api] = name, step
        return not self._budget.is_in_debt() or self.leave_out(NO_TIME)

    def choose(self, kind: Hashable, name: str, step: int) -> Chosen | None:
        """Return what is checked of a call with this signature, None where it is left out."""
        known = self._kinds.get(kind)
        if known is None:
            known = self._kinds[kind] = Kind(name, step, self._turns(name, "forward"))
        known.calls += 1
        known.recurs = step > known.step
        forward, backward = self._order.choose(known)
        if not (forward or backward):
            self.leave_out(self._order.refusal(known))
            return None
        if self._sample < 1 and self._random.random() >= self._sample:
            self.leave_out("not in the sample (sample)")
            return None
        if forward:
            self._order.take(known.forward)
        if backward and known.backward is not None:
            self._order.take(known.backward)
        if not forward or (not backward and known.backward is not None):
            self.leave_out(self._order.refusal(known))
        return Chosen(known, forward, backward)

    def differentiated(self, chosen: Chosen) -> Turns:
        """Return the turns of the gradients of a kind, of which a call was seen that takes some."""
        kind = chosen.kind
        if kind.backward is None:
            kind.backward = self._turns(kind.name, "backward")
            self._order.take(kind.backward)
        return kind.backward

    def await_gradients(self, turns: Turns) -> Callable[[], None]:
        """Set time aside for gradients that will come; return what is to be called when they no longer can."""
        price = self._budget.price(turns)
        self._budget.promise(price)
        turns.waiting += 1

        def end() -> None:
            turns.waiting -= 1
            self._budget.promise(-price)

        return end

    def never_judged(self) -> list[NeverJudged]:
        """Return which kinds of calls have no verdict, by API and direction."""
        seen: dict[tuple[str, Direction], list[tuple[Kind, Turns]]] = {}
        for kind in self._kinds.values():
            for turns in (kind.forward, kind.backward):
                if turns is not None:
                    seen.setdefault((turns.api.name, turns.api.direction), []).append((kind, turns))
        found = [_never_judged(kinds) for kinds in seen.values()]
        unseen = [
            NeverJudged(api, "forward", name, step, 1, 1, has_row=False)
            for api, (name, step) in self._called.items()
            if (api, "forward") not in seen
        ]
        return sorted(filter(None, (*found, *unseen)), key=str)

    def leave_out(self, reason: str) -> bool:
        """Count a call, or its gradients, as not checked, and return False."""
        self.left_out[reason] += 1
        return False

    def _turns(self, name: str, direction: Direction) -> Turns:
        api = _api_of(name)
        of_api = self._apis.setdefault((api, direction), ApiTurns(api, direction))
        of_api.kinds += 1
        return Turns(of_api)


def _never_judged(kinds: Iterable[tuple[Kind, Turns]]) -> NeverJudged | None:
    """Return what of the kinds of one API in one direction was not judged."""
    kinds = list(kinds)
    unjudged = [(kind, turns) for kind, turns in kinds if not turns.judged]
    if not unjudged:
        return None
    kind, turns = next((each for each in unjudged if not each[1].rows), unjudged[0])
    api, direction = turns.api.name, turns.api.direction
    record = backward_of(kind.name) if direction == "backward" else kind.name
    return NeverJudged(api, direction, record, kind.step, len(unjudged), len(kinds), has_row=turns.rows > 0)


def _api_of(name: str) -> str:
    return name.rsplit(".", 2)[0]

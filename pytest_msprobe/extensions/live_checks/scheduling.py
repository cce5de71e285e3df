"""Schedule of live checks: turns of each kind of call, and samples of a training's calls."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from msprobe_hooks.dump.names import Direction, backward_of
from pytest_msprobe.extensions.live_checks.budget import Budget
from pytest_msprobe.results.result import DirectionResult

NO_TIME = "no time left (share)"

# How many turns the mean length of a round goes back.
_REMEMBERED = 64

# For how many rounds a kind must have waited to be checked by the first call that comes. More than one: the others,
# which waited for a round on average, then leave a step's time to find what waits longest.
_DUE = 1.25
_SEARCHED_IN_A_STEP = 0.25

# A kind whose check costs more than so many mean ones takes a turn in fewer rounds.
_DEAR = 8.0


@dataclass(slots=True)
class ApiTurns:
    """The turns that all ``kinds`` of one API took in one direction: the latest one, and how many there were.

    ``round`` is how many of them lie between two of one kind on average.
    """

    name: str
    direction: Direction
    kinds: int = 0
    last: int = 0
    number: int = 0
    round: float = 1.0


@dataclass(slots=True)
class Turns:
    """The turns of one kind in one direction.

    ``last`` is the latest one, as counted by its API, ``number`` how many there were, ``rows`` how many of them had a
    result and ``judged`` how many of those a verdict. Of the others ``waiting`` are gradients that may still come.
    ``seconds`` is what the latest check took. All kinds of an API share its count of turns::

        ApiTurns("mul", kinds=2, number=5)
          ├─ Kind of float16 (2, 3)     forward: Turns(last=5, number=3)
          └─ Kind of float32 (4,)       forward: Turns(last=4, number=2)
    """

    api: ApiTurns
    last: int = 0
    number: int = 0
    rows: int = 0
    judged: int = 0
    waiting: int = 0
    seconds: float = 0.0

    def count(self, result: DirectionResult) -> None:
        """Count what came of a turn."""
        self.rows += 1
        self.judged += result.outcome != "skip"

    @property
    def lost(self) -> int:
        """Return how many turns brought no result: the call raised, or its gradient never came."""
        return max(0, self.number - self.rows - self.waiting)


@dataclass(slots=True)
class Kind:
    """Calls that are alike. ``name`` and ``step`` are those of the first record, ``recurs`` that later steps made more.

    ``backward`` is None while no call was seen that takes gradients; ``is_known`` says that one was looked at.
    """

    name: str
    step: int
    forward: Turns
    backward: Turns | None = None
    is_known: bool = False
    recurs: bool = False
    calls: int = 0


class Order(Protocol):
    """Decides which directions of a call are checked."""

    def choose(self, kind: Kind) -> tuple[bool, bool]:
        """Return whether the result and whether the gradients of a call are to be checked."""

    def take(self, turns: Turns) -> None:
        """Count a turn that begins."""

    def refusal(self, kind: Kind) -> str:
        """Return why a call of this kind, or one direction of it, is left out."""


class Quota:
    """Each kind is checked ``per_api`` times in each direction, and no more; None for always."""

    def __init__(self, per_api: int | None) -> None:
        self._per_api = per_api

    def choose(self, kind: Kind) -> tuple[bool, bool]:
        """Return which directions were not checked often enough."""
        forward = self._is_open(kind, kind.forward)
        if kind.backward is None:
            return forward, forward and not kind.is_known
        return forward, self._is_open(kind, kind.backward)

    def take(self, turns: Turns) -> None:
        """Count a turn that begins."""
        turns.number += 1

    def refusal(self, kind: Kind) -> str:
        """Return why a call of this kind is left out."""
        turns = kind.forward if kind.forward.rows else kind.backward or kind.forward
        checked = "were checked" if turns.judged else "have no verdict" if turns.rows else "gave nothing to check"
        return f"like {self._per_api} that {checked} (per_api)"

    def _is_open(self, kind: Kind, turns: Turns) -> bool:
        if self._per_api is None:
            return True
        # Each try costs copies: what brings nothing, such as a loss that is only logged, is tried ever more rarely.
        return turns.rows + turns.waiting < self._per_api and kind.calls >> turns.lost > 0


class Rotation:
    """APIs take turns for as long as the training runs, and among the calls of an API its kinds.

    What waited longest comes first; a kind that was never checked counts as one that waited for a round longer. No time
    is kept for one certain call, which may never be made again. Instead a call is checked at once if its API waited for
    more than a round, and the less it waited, the more time must have been saved up meanwhile.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._turn = 0
        # How many turns lie between two of one API: the number of APIs and directions that still come.
        self._round = 1.0

    def choose(self, kind: Kind) -> tuple[bool, bool]:
        """Return which directions can be paid from what was saved up, the one that waited longer first."""
        saved, backward = self._budget.saved(), kind.backward
        forward = self._needed(kind, kind.forward)
        if backward is None:
            return saved >= forward, saved >= forward and not kind.is_known
        gradients = self._needed(kind, backward)
        if saved < min(forward, gradients):
            return False, False
        rest = saved - self._budget.price(kind.forward if forward <= gradients else backward)
        return (True, rest >= gradients) if forward <= gradients else (rest >= forward, True)

    def take(self, turns: Turns) -> None:
        """Count a turn that begins."""
        api = turns.api
        self._turn += 1
        api.number += 1
        self._round += (self._turn - api.last - self._round) / min(self._turn, _REMEMBERED)
        api.round += (api.number - turns.last - api.round) / min(api.number, _REMEMBERED)
        turns.number += 1
        turns.last, api.last = api.number, self._turn

    def refusal(self, kind: Kind) -> str:
        """Return why a call is left out."""
        return NO_TIME

    def _needed(self, kind: Kind, turns: Turns) -> float:
        """Return the seconds that must be saved up for a check."""
        api, budget = turns.api, self._budget
        waited, too_soon = (self._turn + 1 - api.last) / self._round, 0.0
        if turns.number:
            waited /= max(1.0, turns.seconds / (_DEAR * budget.mean))
            if api.kinds > 1:
                too_soon = max(0.0, _DUE - (api.number + 1 - turns.last) / api.round)
        elif kind.recurs:
            waited += 1
        return max(0.0, _DUE - waited + too_soon) / _SEARCHED_IN_A_STEP * budget.saved_in_a_step


def signature(name: str, modes: Hashable, args: Any, kwargs: Any, looks: Callable[[Any], Hashable | None]) -> Hashable:
    """Return what calls share that are alike: the API, the modes, the inputs but for the values of tensors and floats.

    ``name`` is that of the forward record; ``looks`` returns what a framework sees of a value of its own, else None.
    """

    def form(value: Any) -> Any:
        look = looks(value)
        if look is not None:
            return look
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
    """Kinds of calls to one API that have no verdict in one direction: so many of the ``total``.

    ``record`` and ``step`` are those of the first one. ``has_row`` says that a result has the reason.
    """

    api: str
    direction: Direction
    record: str
    step: int
    kinds: int
    total: int
    has_row: bool

    @property
    def some_of_all(self) -> str:
        """Return how many kinds these are, where other kinds were judged."""
        return f"{self.kinds} of {self.total} kinds" if self.kinds < self.total else ""

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
        entry = self._kinds.get(kind)
        if entry is None:
            entry = self._kinds[kind] = Kind(name, step, self._turns(name, "forward"))
        entry.calls += 1
        entry.recurs = step > entry.step
        forward, backward = self._order.choose(entry)
        if not (forward or backward):
            self.leave_out(self._order.refusal(entry))
            return None
        if self._sample < 1 and self._random.random() >= self._sample:
            self.leave_out("not in the sample (sample)")
            return None
        if forward:
            self._order.take(entry.forward)
        if backward and entry.backward is not None:
            self._order.take(entry.backward)
        if not forward or (not backward and entry.backward is not None):
            self.leave_out(self._order.refusal(entry))
        return Chosen(entry, forward, backward)

    def differentiated(self, choice: Chosen) -> Turns:
        """Return the turns of the gradients of a kind, of which a call was seen that takes some."""
        kind = choice.kind
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
        turns_by_api: dict[tuple[str, Direction], list[tuple[Kind, Turns]]] = {}
        for kind in self._kinds.values():
            for turns in (kind.forward, kind.backward):
                if turns is not None:
                    turns_by_api.setdefault((turns.api.name, turns.api.direction), []).append((kind, turns))
        unjudged = [_never_judged(kinds) for kinds in turns_by_api.values()]
        unseen = [
            NeverJudged(api, "forward", name, step, 1, 1, has_row=False)
            for api, (name, step) in self._called.items()
            if (api, "forward") not in turns_by_api
        ]
        return sorted(filter(None, (*unjudged, *unseen)), key=str)

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
    kind, turns = next((pair for pair in unjudged if not pair[1].rows), unjudged[0])
    api, direction = turns.api.name, turns.api.direction
    record = backward_of(kind.name) if direction == "backward" else kind.name
    return NeverJudged(api, direction, record, kind.step, len(unjudged), len(kinds), has_row=turns.rows > 0)


def _api_of(name: str) -> str:
    return name.rsplit(".", 2)[0]

"""Whose turn it is to be checked: of each kind of call, in each direction, when it was checked and how often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from msprobe_hooks.dump.names import Direction
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
    taken: int = 0
    round: float = 1.0


@dataclass(slots=True)
class Turns:
    """The turns of one kind in one direction.

    ``last`` is the latest one, as counted by its API, ``taken`` how many there were, ``rows`` how many of them had a
    result and ``judged`` how many of those a verdict. Of the others ``waiting`` are gradients that may still come.
    ``seconds`` is what the latest check took.
    """

    api: ApiTurns
    last: int = 0
    taken: int = 0
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
        """How many turns brought no result: the call raised, or its gradient never came."""
        return max(0, self.taken - self.rows - self.waiting)


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
        turns.taken += 1

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
        api.taken += 1
        self._round += (self._turn - api.last - self._round) / min(self._turn, _REMEMBERED)
        api.round += (api.taken - turns.last - api.round) / min(api.taken, _REMEMBERED)
        turns.taken += 1
        turns.last, api.last = api.taken, self._turn

    def refusal(self, kind: Kind) -> str:
        """Return why a call is left out."""
        return NO_TIME

    def _needed(self, kind: Kind, turns: Turns) -> float:
        """Return the seconds that must be saved up for a check."""
        api, budget = turns.api, self._budget
        waited, too_soon = (self._turn + 1 - api.last) / self._round, 0.0
        if turns.taken:
            waited /= max(1.0, turns.seconds / (_DEAR * budget.mean))
            if api.kinds > 1:
                too_soon = max(0.0, _DUE - (api.taken + 1 - turns.last) / api.round)
        elif kind.recurs:
            waited += 1
        return max(0.0, _DUE - waited + too_soon) / _SEARCHED_IN_A_STEP * budget.saved_in_a_step

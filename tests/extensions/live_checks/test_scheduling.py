"""Which calls of a long training are checked: simulated steps, whose seconds are those of the test."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

from msprobe_standards import Verdict
from pytest_msprobe.extensions.live_checks.budget import Budget
from pytest_msprobe.extensions.live_checks.scheduling import ApiTurns, Kind, Quota, Selection, Turns
from pytest_msprobe.results.result import DirectionResult

PASS = DirectionResult("", Verdict("pass", ""))


@dataclass(frozen=True)
class Op:
    """A call that a step makes, and the seconds that it and its checks take; 0 for gradients that there are none of."""

    api: str
    shape: int = 0
    call: float = 1e-4
    forward: float = 3e-3
    backward: float = 0.0


class Training:
    """Runs steps, with a share of their time for checks; ``judged`` says of each API and direction in which ones."""

    def __init__(self, share: float) -> None:
        self.now, self.steps = 0.0, 0
        self.budget = Budget(share, lambda: self.now)
        self.selection = Selection(1.0, 3, self.budget, 0)
        self.promised: dict[int, Callable[[], None]] = {}
        self.judged: dict[str, list[int]] = defaultdict(list)

    def run(self, steps: int, ops_of: Callable[[int], Sequence[Op]]) -> None:
        """Make the calls of each step, then their backward passes in the other order."""
        for _ in range(steps):
            awaited = [(op, self._call(op, place)) for place, op in enumerate(ops_of(self.steps))]
            for op, turns in reversed(awaited):
                self.now += 2 * op.call if op.backward else 0
                if turns is not None:
                    self._check(turns, op.backward)
            self.steps += 1
            self.budget.begin_step()

    def longest_wait(self, since: int) -> int:
        """Return for how many steps after ``since`` some API was not judged in some direction."""
        moments = ([since, *(step for step in steps if step >= since), self.steps] for steps in self.judged.values())
        return max(after - before for each in moments for before, after in pairwise(each))

    def _call(self, op: Op, place: int) -> Turns | None:
        name, chosen = f"Torch.{op.api}.{place}.forward", None
        if self.selection.has_time(name, self.steps):
            with self.budget.spending():
                self.now += 15e-6
                chosen = self.selection.choose((op.api, op.shape), name, self.steps)
        self.now += op.call
        if chosen is None:
            return None
        if chosen.forward:
            self._check(chosen.kind.forward, op.forward)
        chosen.kind.is_known = True
        if not (chosen.backward and op.backward):
            return None
        turns = self.selection.differentiated(chosen)
        self.promised[id(turns)] = self.selection.await_gradients(turns)
        return turns

    def _check(self, turns: Turns, seconds: float) -> None:
        with self.budget.spending(turns):
            self.now += seconds
        turns.count(PASS)
        self.judged[f"{turns.api.name} {turns.api.direction}"].append(self.steps)
        self.promised.pop(id(turns), lambda: None)()


def small_model(step: int) -> list[Op]:
    """Return ten layers with gradients, then an optimizer's calls for twenty shapes of parameters."""
    layers = [Op(f"layer{number}", forward=4e-3, backward=6e-3) for number in range(10)]
    return [*layers, *(Op(f"update{number % 4}", number, call=1e-5) for number in range(20))]


def test_every_api_is_judged_again_and_again_in_each_direction() -> None:
    training = Training(share=0.2)
    training.run(2000, small_model)
    assert len(training.judged) == 24
    # A round costs 112 ms, which the training saves up in about 175 steps.
    assert training.longest_wait(since=1000) <= 300
    assert training.selection.never_judged() == []


def test_all_kinds_of_an_api_take_their_turns() -> None:
    training = Training(share=1.0)
    training.run(500, small_model)
    updates = [kind.forward.judged for kind in training.selection._kinds.values() if "update" in kind.name]
    assert len(updates) == 20
    assert min(updates) > max(updates) / 2


def test_a_costly_kind_is_judged_though_others_could_spend_all_that_is_left() -> None:
    training = Training(share=0.2)
    training.run(3000, lambda step: [*small_model(step), Op("costly", forward=0.1, backward=0.3)])
    assert len(training.judged["Torch.costly forward"]) >= 2
    assert len(training.judged["Torch.costly backward"]) >= 2
    del training.judged["Torch.costly forward"], training.judged["Torch.costly backward"]
    assert training.longest_wait(since=1000) <= 1000


def test_inputs_whose_shapes_never_recur_leave_turns_to_all_others() -> None:
    def changing(step: int) -> list[Op]:
        return [replace(op, shape=step) if "layer" in op.api else op for op in small_model(step)]

    training = Training(share=0.2)
    training.run(2000, changing)
    assert len(training.judged) == 24
    assert training.longest_wait(since=1000) <= 400


def test_kinds_that_come_rarely_do_not_hold_up_the_others() -> None:
    training = Training(share=0.2)
    training.run(2000, lambda step: [replace(op, shape=op.shape + 100 * (step % 50 == 49)) for op in small_model(step)])
    assert training.longest_wait(since=1000) <= 500


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_checks_take_the_share_that_is_theirs(share: float) -> None:
    training = Training(share)
    training.run(2000, small_model)
    assert training.budget.spent / (training.now - training.budget.spent) == pytest.approx(share, rel=0.05)


def test_calls_without_a_verdict_are_not_counted_as_checked() -> None:
    quota, kind = Quota(3), Kind("Torch.empty.0.forward", 0, Turns(ApiTurns("Torch.empty", "forward")), calls=4)
    for _ in range(3):
        assert quota.choose(kind)[0]
        quota.take(kind.forward)
        kind.forward.count(DirectionResult("", Verdict("skip", "")))
    assert not quota.choose(kind)[0]
    assert quota.refusal(kind) == "like 3 that have no verdict (per_api)"


def test_a_check_may_begin_when_nothing_is_owed_whatever_it_costs() -> None:
    now = [0.0]
    budget, turns = Budget(0.2, lambda: now[0]), Turns(ApiTurns("Torch.matmul", "forward"))
    assert not budget.is_in_debt()
    with budget.spending(turns):
        now[0] = 2.0
    now[0] = 11.9
    assert budget.is_in_debt()
    now[0] = 12.1
    assert not budget.is_in_debt()


def test_gradients_that_will_come_are_paid_for_ahead() -> None:
    now = [0.0]
    budget, turns = Budget(0.5, lambda: now[0]), Turns(ApiTurns("Torch.matmul", "backward"), seconds=1.0)
    budget.promise(budget.price(turns))
    assert budget.is_in_debt()
    budget.promise(-1.0)
    assert not budget.is_in_debt()

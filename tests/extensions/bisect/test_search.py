"""The search for the call that moves a number, over numbers that are made up."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_msprobe.extensions.bisect.search import Fixes, Found, bound_for, distance, search


class Program:
    """Calls each of which moves a number of 1.0 by so much where it is raised."""

    def __init__(self, effects: list[float]) -> None:
        self.effects = effects
        self.runs = 0

    def __call__(self, fixes: Fixes) -> float:
        self.runs += 1
        return 1.0 + math.fsum(self.effects[place] for place in fixes.places(len(self.effects)))

    def search(self, bound: float | None = None) -> Found | None:
        total = len(self.effects)
        raised = self(Fixes(0, total))
        return search(total, 1.0, raised, self, bound_for(1.0, raised) if bound is None else bound)


@given(st.integers(1, 5000), st.data())
def test_the_one_call_that_moves_the_number_is_found_in_few_runs(total, data):
    culprit = data.draw(st.integers(0, total - 1))
    program = Program([1e-9] * total)
    program.effects[culprit] = 0.25
    found = program.search()
    assert found is not None
    assert (found.place, found.moves_alone, found.has_others) == (culprit, True, False)
    # With the two runs that list the calls.
    assert program.runs + 2 <= 2 * math.log2(total) + 5


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=60), st.floats(0, 1))
def test_what_is_found_takes_the_number_beyond_the_bound_whatever_the_calls_do(effects, bound):
    program = Program(effects)
    found = program.search(bound)
    if found is None:
        assert distance(program(Fixes(0, len(effects))), 1.0) <= bound
    else:
        assert distance(program(Fixes(0, found.place)), 1.0) <= bound
        assert distance(program(Fixes(0, found.place + 1)), 1.0) > bound


@given(st.lists(st.integers(0, 99), min_size=2, max_size=5, unique=True))
def test_of_several_calls_the_first_is_found_and_that_there_are_more(culprits):
    program = Program([0.25 if place in culprits else 0.0 for place in range(100)])
    found = program.search()
    assert found is not None
    assert (found.place, found.moves_alone, found.has_others) == (min(culprits), True, True)


def test_calls_that_only_move_the_number_together_are_distinguished_from_one_that_does():
    found = Program([0.1] * 8).search(bound=0.25)
    assert found is not None
    assert (found.place, found.moves_alone) == (2, False)


def test_nothing_is_found_where_all_calls_together_only_round():
    assert Program([2.0**-24] * 8).search() is None


@pytest.mark.parametrize("plain", [math.nan, math.inf])
def test_a_number_that_becomes_finite_has_moved(plain):
    def measure(fixes: Fixes) -> float:
        return 1.0 if 3 in fixes.places(10) else plain

    found = search(10, plain, 1.0, measure, bound_for(plain, 1.0))
    assert found is not None
    assert (found.place, found.moves_alone, found.has_others) == (3, True, False)


def test_two_nans_are_no_movement():
    assert distance(math.nan, math.nan) == 0


def test_fixes_are_described_as_a_reader_counts():
    described = [
        Fixes(0, 8).describe(8),
        Fixes(0, 3).describe(8),
        Fixes(2, 3).describe(8),
        Fixes(2, 3, is_inverted=True).describe(8),
    ]
    assert described == ["all 8 calls", "calls 1 to 3", "call 3 alone", "all calls but 3"]

"""Sequences of calls aligned where calls were added, left out or moved."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_msprobe.modes.compare.matching.sequence_alignment import align

KEYS = st.lists(st.integers(0, 6), max_size=30)


@given(KEYS, KEYS)
def test_each_place_is_paired_once_and_with_an_equal_key(ours: list[int], theirs: list[int]) -> None:
    pairs = align(ours, theirs)
    assert all(ours[i] == theirs[j] for i, j in pairs)
    assert len({i for i, _ in pairs}) == len({j for _, j in pairs}) == len(pairs)


@given(KEYS, KEYS)
def test_of_each_key_as_many_are_paired_as_both_sides_have(ours: list[int], theirs: list[int]) -> None:
    paired = Counter(ours[i] for i, _ in align(ours, theirs))
    assert paired == Counter(ours) & Counter(theirs)


@given(KEYS)
def test_a_sequence_is_aligned_with_itself_place_by_place(keys: list[int]) -> None:
    assert align(keys, keys) == [(i, i) for i in range(len(keys))]


@pytest.mark.parametrize("place", [0, 3, 7])
def test_an_inserted_call_leaves_the_others_with_their_partners(place: int) -> None:
    theirs = list("abababc")
    ours = [*theirs[:place], "x", *theirs[place:]]
    expected = [(i + (i >= place), i) for i in range(len(theirs))]
    assert align(ours, theirs) == expected

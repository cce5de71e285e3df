"""Names of others as ids hold them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks.messages import numbered

# Few letters, so that names are often equal, or like another one with its number.
NAMES = st.lists(st.text("a#23", max_size=4), max_size=12)


@given(NAMES)
def test_numbered_names_are_as_many_and_no_two_are_equal(names: list[str]) -> None:
    found = list(numbered(names))
    assert len(set(found)) == len(found) == len(names)


@given(NAMES)
def test_the_first_of_a_name_keeps_it_unless_a_number_took_it_before(names: list[str]) -> None:
    found = list(numbered(names))
    assert all(name == new or name in found[:place] for place, (name, new) in enumerate(zip(names, found, strict=True)))


def test_the_second_of_a_name_is_number_2() -> None:
    assert list(numbered(["a", "b", "a", "a"])) == ["a", "b", "a#2", "a#3"]


def test_a_name_that_another_one_got_by_its_number_is_numbered_too() -> None:
    assert list(numbered(["a", "a", "a#2"])) == ["a", "a#2", "a#2#2"]

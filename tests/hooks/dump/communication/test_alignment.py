from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks.dump.communication.collectives import align


def together(*sequences: str) -> list[str]:
    """Return what each column holds, a dot where a sequence has nothing: ``ab.`` of three."""
    columns = align(dict(enumerate(sequences)))
    return ["".join(each[column[i]] if i in column else "." for i, each in enumerate(sequences)) for column in columns]


@pytest.mark.parametrize(
    ("sequences", "columns"),
    [
        (("abc", "abc"), ["aa", "bb", "cc"]),
        (("abcabc", "abcabc", "abcbc"), ["aaa", "bbb", "ccc", "aa.", "bbb", "ccc"]),
        (("abcab", "abcab", "abccab"), ["aaa", "bbb", "ccc", "..c", "aaa", "bbb"]),
        (("abcab", "abcab", "axcab"), ["aaa", "bbx", "ccc", "aaa", "bbb"]),
        (("abcd", "abcd", "acbd"), ["aaa", "bbb", "ccc", "ddd"]),
        (("xxab", "xxab", "xxba"), ["xxx", "xxx", "aaa", "bbb"]),
        (("abab", "abab", "ab"), ["aaa", "bbb", "aa.", "bb."]),
        (("ab", "ab", "ax"), ["aaa", "bbx"]),
        (("", "ab", "ab"), [".aa", ".bb"]),
        ((), []),
    ],
)
def test_a_difference_costs_what_differs_and_nothing_behind_it(sequences: tuple[str, ...], columns: list[str]) -> None:
    assert together(*sequences) == columns


def test_what_two_of_five_have_in_common_is_one_event() -> None:
    assert together("aab", "aab", "aab", "aazb", "aazb") == ["aaaaa", "aaaaa", "...zz", "bbbbb"]


texts = st.lists(st.text("abc", max_size=12), max_size=5)


@given(texts)
def test_every_element_is_in_one_column(sequences: list[str]) -> None:
    places = [(name, place) for column in align(dict(enumerate(sequences))) for name, place in column.items()]
    assert sorted(places) == [(name, place) for name, each in enumerate(sequences) for place in range(len(each))]


@given(texts, st.randoms(use_true_random=False))
def test_the_order_of_sequences_changes_nothing(sequences: list[str], shuffler: random.Random) -> None:
    names = list(range(len(sequences)))
    shuffler.shuffle(names)
    plain = align(dict(enumerate(sequences)))
    renamed = align({new: sequences[old] for new, old in enumerate(names)})
    restored = [sorted((names[new], place) for new, place in column.items()) for column in renamed]
    assert restored == [sorted(column.items()) for column in plain]


@given(st.text("abcd", max_size=30), st.integers(2, 6))
def test_equal_sequences_meet_place_by_place(sequence: str, count: int) -> None:
    assert align(dict.fromkeys(range(count), sequence)) == [
        dict.fromkeys(range(count), place) for place in range(len(sequence))
    ]


def test_sequences_that_share_nothing_are_aligned_in_linear_time() -> None:
    columns = align({0: ["a"] * 2000, 1: ["b"] * 2000, 2: [f"c{i}" for i in range(2000)]})
    assert sum(map(len, columns)) == 6000

"""Limits on what is saved are read as the user writes them."""

from __future__ import annotations

import pytest

from msprobe_hooks.messages import format_size
from pytest_msprobe.storage.limits import parse_limits


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("500MiB,20GiB", (500 * 2**20, 20 * 2**30)),
        ("1.5KiB, 2KiB", (1536, 2048)),
        ("10 B,20", (10, 20)),
        ("500MiB", (500 * 2**20, 10 * 2**30)),
        ("1TiB", (2**40, 2**40)),
    ],
)
def test_one_limit_leaves_the_folder_its_own_or_more(text: str, limits: tuple[int, int]) -> None:
    assert parse_limits(text) == limits


@pytest.mark.parametrize("text", ["", "much", "1GB", "-1", "1,2,3", "1,"])
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="expected a size, or two with a comma, such as 500MiB or 1GiB,10GiB"):
        parse_limits(text)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 * 2**29, "1.5 GiB"), (2**41, "2.0 TiB")]
)
def test_a_size_is_written_in_the_largest_unit_of_which_there_is_one(size: int, text: str) -> None:
    assert format_size(size) == text

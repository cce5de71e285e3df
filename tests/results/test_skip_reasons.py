"""Reasons to skip by the texts that processes exchange."""

from __future__ import annotations

from pytest_msprobe.results.outcomes import BaseSkipReason, SkipReason, skip_reason


class ColourSkip(BaseSkipReason):
    RED = "it is red"


def test_a_reason_is_found_by_its_text_in_any_declaration() -> None:
    assert skip_reason("it is red") is ColourSkip.RED
    assert skip_reason(SkipReason.NO_GOLDEN.value) is SkipReason.NO_GOLDEN


def test_a_text_that_is_no_reason_is_none() -> None:
    assert skip_reason("RED") is None

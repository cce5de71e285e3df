"""Margins that are upper bounds, next to those that were measured."""

from __future__ import annotations

from pytest_msprobe.reports.worst_margins import Worst, is_worse


def worst(margin: float, *, at_most: bool = False) -> Worst:
    return Worst("Functional.conv2d.0.backward", "pass", margin, 0, 1, at_most)


def test_a_bound_is_not_worse_than_a_smaller_measured_margin() -> None:
    assert not is_worse(worst(0.7, at_most=True), worst(0.18))
    assert not is_worse(worst(0.18), worst(0.7, at_most=True))


def test_a_measured_margin_above_a_bound_is_worse() -> None:
    assert is_worse(worst(0.95), worst(0.7, at_most=True))


def test_bounds_share_their_limit_and_are_compared() -> None:
    assert is_worse(worst(0.3, at_most=True), worst(0.01, at_most=True))


def test_a_bound_is_shown_as_one() -> None:
    assert (str(worst(0.4567, at_most=True)), str(worst(0.4567))) == ("<= 0.457", "0.457")

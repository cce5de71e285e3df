"""The number that a run of a command tells."""

from __future__ import annotations

import math

import pytest

from pytest_msprobe.errors import CommandError
from pytest_msprobe.extensions.bisect.command import Metric, read_metric


def number(output: str, pattern: str | None = None) -> float:
    return read_metric(pattern, is_exit_status=False).of(0, output)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("loss 2.5 after 10 steps\n", 2.5),
        ("1.0\n-3.25e-2\n", -0.0325),
        ("loss: 1e5 (epoch 3)", 1e5),
        ("tensor(0.7500, grad_fn=<Mean0>)", 0.75),
        ("{'loss': .5}", 0.5),
        ("step 1.5, v1.2.3, x1.5", 1.5),
        ("loss=inf", math.inf),
        ("2. information", 2.0),
    ],
)
def test_by_default_it_is_the_last_float(output, expected):
    assert number(output) == expected


def test_nan_is_a_number():
    assert math.isnan(number("loss nan\n"))


def test_a_pattern_takes_its_first_group_of_its_last_match():
    assert number("loss=1 time=2.5\nloss=3 time=4.5\n", r"loss=(\S+)") == 3


def test_a_pattern_without_a_group_is_the_number():
    assert number("a 12 b 34", r"\d+") == 34


def test_the_exit_status_asks_nothing_of_the_output():
    assert Metric(is_exit_status=True).of(3, "") == 3


@pytest.mark.parametrize(
    ("output", "pattern", "text"),
    [
        ("done after 10 steps", None, "prints no float"),
        ("loss 2.5", "accuracy=(.*)", "nothing that matches 'accuracy="),
        ("loss=high", "loss=(.*)", "'high' is not a number"),
        ("loss=", "loss=(x)?", "None is not a number"),
    ],
)
def test_output_without_the_number_is_reported_with_what_to_do(output, pattern, text):
    with pytest.raises(CommandError, match=text) as raised:
        number(output, pattern)
    assert raised.value.remedy


def test_a_pattern_that_is_none_is_reported():
    with pytest.raises(CommandError, match="not a regular expression"):
        read_metric("loss=(", is_exit_status=False)

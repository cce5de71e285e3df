"""The checks of tests with functions of MindSpore: what raises, and what cannot be compared, fails the test."""

from __future__ import annotations

import pytest

TESTS = """
import contextlib

import mindspore
import numpy as np
import pytest
from mindspore import mint
from pytest_msprobe import recorded

X = mindspore.Tensor(np.ones((2, 3), np.float32))
VECTOR = recorded.Tensor(mindspore.float32, (4,), 0.0, 1.0)
CALLS = {"Mint.tanh.0": recorded.Call(args=[VECTOR], outputs=[VECTOR], framework="mindspore")}


def test_generated(precision):
    def kernel(x):
        raise ValueError("my kernel is broken")

    precision.check_recorded(kernel, CALLS, "Mint.tanh.0.forward")


def test_other_framework(precision):
    precision.check(mint.tanh, X)


@pytest.mark.msprobe_record(framework="mindspore")
def test_dump(msprobe_dump):
    with contextlib.suppress(Exception):
        mint.matmul(X, X)
    msprobe_dump.check()
"""


def test_what_raises_or_cannot_be_compared_fails_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_mine=TESTS)
    result = pytester.runpytest_inprocess("--msprobe-device=cpu")
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(
        [
            '*    raise ValueError("my kernel is broken")',
            "E *but not on the CPU: ValueError: my kernel is broken",
            "E *tanh returned a mindspore.common.*Tensor; precision.check compares tensors of torch only, *",
            "msprobe_dump: nothing was judged; 1 skipped: the call raised when it was recorded: *",
        ]
    )
    # Only the user's part of the traceback is shown.
    assert "_told_plainly" not in result.stdout.str()

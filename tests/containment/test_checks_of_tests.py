"""With ``--msprobe-isolate`` a check that a test makes costs, whatever it does, that check alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_msprobe.journal import read_journal

TESTS = """
import ctypes
import os

import pytest
import torch
from pytest_msprobe import tensors


def test_right(precision):
    seen = []
    x = torch.linspace(-2, 2, 100).requires_grad_()

    def square(x):
        seen.append(x)
        print("computed")
        return x * x

    results = precision.check(square, x, backward=True, golden=lambda x: x.square())
    assert [result.record for result in results] == ["test_right.forward", "test_right.backward"]
    assert seen == []


def test_wrong(precision):
    with pytest.raises(AssertionError, match="test_wrong.forward is wrong on sim:0"):
        precision.check(lambda x: x * 1.01, torch.ones(4), golden=lambda x: x)
"""

BREAKING = """
def test_crash(precision):
    def crash(x):
        os.write(2, b"driver: all is lost")
        ctypes.string_at(0)

    precision.check(crash, torch.ones(4))


class Backward(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 2

    @staticmethod
    def backward(context, gradient):
        os._exit(7)


def test_exit(precision):
    precision.check(Backward.apply, torch.ones(4).requires_grad_(), backward=True)


def test_drawn(precision):
    precision.check(lambda x: os.abort() if x.numel() > 3 else x, tensors(torch.float32, (8,)))


def test_replayed(msprobe_dump):
    torch.ones(3).abs()
    (result,) = msprobe_dump.check()
    assert result.record == "Tensor.abs.0.forward"
"""

HANGING = """
def test_hang(precision):
    def hang(x):
        libc = ctypes.PyDLL(None)
        libc.sigprocmask(0, ctypes.byref(ctypes.c_ulong(2**64 - 1)), None)
        libc.sleep(60)

    precision.check(hang, torch.ones(4))
"""


ISOLATED = ("test_mine.py", "--msprobe-device=sim", "--msprobe-isolate")


def run(pytester: pytest.Pytester, body: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(test_mine=body)
    return pytester.runpytest_subprocess(*ISOLATED, *arguments)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("way", [[], ["-n1"]], ids=["alone", "worker"])
def test_it_may_crash_the_process_in_which_it_runs(pytester: pytest.Pytester, way: list[str]) -> None:
    result = run(pytester, TESTS + BREAKING, "--msprobe-journal=run.jsonl", "-rP", *way)
    result.assert_outcomes(passed=3, failed=3)
    for lines in (
        ["*: crash: *was killed by SIGSEGV", "*test_crash.forward failed (crash) on sim:0", "*driver: all is lost*"],
        ["*: crash: *exited with status 7", "*test_exit.backward failed (crash) on sim:0"],
        ["*: crash: *was killed by SIGABRT", "*test_drawn.forward failed (crash) on sim:0"],
    ):
        result.stdout.fnmatch_lines(lines)
    # What the function prints is the test's own output; what it does to the test's memory is not seen there.
    result.stdout.fnmatch_lines(["computed"])
    journal = read_journal(pytester.path / "run.jsonl").entries
    assert journal["test_mine.py::test_exit.backward"].outcome == "crash"


@pytest.mark.nightly
@pytest.mark.slow
def test_it_may_hang_in_native_code(pytester: pytest.Pytester) -> None:
    result = run(pytester, TESTS + HANGING, "--msprobe-timeout=10")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*: timeout: hung in native code*", "*test_hang.forward failed (timeout)*"])


THREADED = """
import torch


def test_threads(precision):
    torch.set_num_threads(2)
    x = torch.randn(600, 600)
    (x @ x).exp().sum()
    precision.check(torch.matmul, x.requires_grad_(), torch.randn(600, 600), backward=True)
"""


@pytest.mark.slow
def test_a_test_that_has_computed_with_threads_checks_all_the_same(pytester: pytest.Pytester) -> None:
    run(pytester, THREADED, "--msprobe-timeout=60").assert_outcomes(passed=1)


def test_a_failure_is_saved_where_it_was_judged(pytester: pytest.Pytester) -> None:
    body = """
import torch


def test_wrong(precision):
    precision.check(lambda x: x * 1.01, torch.ones(4), golden=lambda x: x)
"""
    pytester.makepyfile(test_mine=body)
    result = pytester.runpytest_inprocess(*ISOLATED, "--msprobe-save-failures=cases")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*test_wrong.forward is wrong on sim:0*"])
    assert list(Path(pytester.path / "cases").iterdir())


USED = """
import torch


def test_used(precision, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    precision.check(torch.abs, torch.ones(4))
"""


def test_an_accelerator_that_the_test_itself_has_used_is_named_with_the_remedy(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_mine=USED)
    result = pytester.runpytest_inprocess(*ISOLATED, "--msprobe-device=auto")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the test's process has used cuda, which processes forked*-n 1 isolates*"])

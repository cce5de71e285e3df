"""``--msprobe-batch-invariant`` and ``precision.check(batch_invariant=...)`` through pytest."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks import record
from pytest_msprobe.engine.replay.determinism import parts_of
from tests.support.runs import Checked

# What a device adds to each row where it gets more than four of them.
DEPENDENT = """
if record == 'Functional.rms_norm.0.{direction}':
    tree = [result] if torch.is_tensor(result) else list(result)
    if len(tree[0]) > 4:
        tree[0] = tree[0] * (1 + 2**-20)
    result = tree[0] if torch.is_tensor(result) else tuple(tree)
"""
FORWARD = "Functional.rms_norm.0.forward"
BACKWARD = "Functional.rms_norm.0.backward"


@pytest.fixture
def checking(tmp_path: Path, make_device: Any, check: Any) -> Callable[..., Checked]:
    def run(*arguments: str, direction: str = "forward", **options: Any) -> Checked:
        make_device(DEPENDENT.format(direction=direction))
        torch.manual_seed(0)
        with record(tmp_path / "run", level="L1", task="statistics"):
            x = torch.randn(12, 40, requires_grad=True)
            F.rms_norm(x, (40,), torch.ones(40, requires_grad=True)).backward(torch.randn(12, 40))
            torch.sum(x.detach())
            F.dropout(x.detach(), 0.5)
            torch.mul(torch.randn(1), 2.0)
        found: Checked = check("--msprobe-device=faulty", f"--msprobe-dump={tmp_path / 'run'}", *arguments, **options)
        return found

    return run


def test_rows_that_depend_on_the_batch_fail_and_say_which(checking: Any) -> None:
    checked = checking("--msprobe-batch-invariant")
    # What the device does to the result is in its graph, too.
    assert checked.wrong == {FORWARD, BACKWARD}
    case = checked.cases[FORWARD]
    assert (
        "output.0: depends on the batch: 12 of 15 parts of the batch differ from the whole, first row 0 of 12 alone"
        in (case.text)
    )
    assert case.properties["msprobe.standard"] == "batch_invariance"
    assert case.properties["msprobe.batch_dependent"].startswith("output.0: 12 of 15 parts")
    [command] = [line for line in case.text.splitlines() if line.startswith("Run this item alone: ")]
    assert "--msprobe-batch-invariant" in command


def test_gradients_of_rows_that_depend_on_the_batch_fail(checking: Any) -> None:
    checked = checking("--msprobe-batch-invariant", direction="backward")
    assert checked.wrong == {BACKWARD}
    assert "grad.args.0: depends on the batch" in checked.cases[BACKWARD].text


def test_the_summary_counts_what_ran_on_parts_and_why_the_rest_did_not(checking: Any) -> None:
    output = checking("--msprobe-batch-invariant").output
    assert "2 run on parts of their batch, 2 depend on it" in output
    assert "2 Functional.rms_norm: by at most" in output
    assert "1 not run on parts: it draws random numbers" in output
    assert "1 not run on parts: its batch has one row" in output
    assert "not run on parts: its rows depend on each other, or no rule says how to cut it" in output


def test_the_whole_batch_is_contiguous_as_its_parts_are(tmp_path: Path, make_device: Any, check: Any) -> None:
    # A device that rounds another way where its input is not contiguous.
    make_device("""
if not args[0].is_contiguous():
    result = result * (1 + 2**-23)
""")
    with record(tmp_path / "run", level="L1", task="statistics"):
        torch.tanh(torch.randn(40, 12).t())
    checked = check("--msprobe-device=faulty", f"--msprobe-dump={tmp_path / 'run'}", "--msprobe-batch-invariant")
    assert checked.wrong == set()
    assert "run on parts of their batch, 0 depend on it" in checked.output


UNSTEADY = """
if record == 'Functional.rms_norm.0.forward':
    self.runs = getattr(self, 'runs', 0) + 1
    if {when}:
        result = result * (1 + 2**-20)
"""


@pytest.mark.parametrize(
    ("when", "reason"),
    [
        ("self.runs == 1", "output.0: nondeterministic: two runs of the whole batch differ: 1 of 1 repeated runs"),
        ("self.runs == 2", "output.0: wrong once: 1 of 15 parts of the batch differ from the whole"),
    ],
    ids=["the whole", "a part"],
)
def test_what_differs_from_itself_is_not_said_to_depend_on_the_batch(
    when: str, reason: str, tmp_path: Path, make_device: Any, check: Any
) -> None:
    make_device(UNSTEADY.format(when=when))
    with record(tmp_path / "run", level="L1", task="statistics"):
        F.rms_norm(torch.randn(12, 40), (40,))
    checked = check("--msprobe-device=faulty", f"--msprobe-dump={tmp_path / 'run'}", "--msprobe-batch-invariant")
    assert checked.wrong == {FORWARD}
    assert reason in checked.cases[FORWARD].text
    assert "depends on the batch" not in checked.cases[FORWARD].text


def test_rows_are_not_looked_at_unless_asked_for(checking: Any) -> None:
    checked = checking()
    assert checked.wrong == set()
    assert "parts of their batch" not in checked.output


def test_a_saved_case_holds_the_parts_of_its_batch(checking: Any, tmp_path: Path) -> None:
    checking("--msprobe-batch-invariant", f"--msprobe-save-failures={tmp_path / 'cases'}")
    [case] = (tmp_path / "cases").glob(f"{FORWARD}-*/case.json")
    assert json.loads(case.read_text())["result"]["extras"]["batch_invariance"]["variations"]


@given(st.integers(2, 10_000))
def test_parts_lie_within_the_batch_and_none_is_the_whole(length: int) -> None:
    parts = parts_of(length)
    assert len(set(parts)) == len(parts)
    assert all(start >= 0 and 0 < size < length and start + size <= length for start, size in parts)
    assert {(0, 1), (length - 1, 1)} <= set(parts)


FIXTURE = """
    import pytest, torch

    def dependent(x, weight):
        return x * weight * (1 + 2**-20 if len(x) > 4 else 1)

    def independent(x, weight):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight

    X, W = torch.randn(12, 30).requires_grad_(), torch.ones(30)
    golden = lambda x, weight: x * weight

    def test_dependent(precision):
        precision.check(dependent, X, W, golden=golden, batch_invariant=True)

    def test_independent(precision):
        precision.check(independent, X, W, batch_invariant=True, backward=True)

    def test_several(precision):
        precision.check(lambda q, k: q * k, X, k=X.detach(), batch_invariant=[0, "k"])

    def test_unlike(precision):
        precision.check(independent, X, W, batch_invariant=[0, 1])

    def test_no_rows(precision):
        precision.check(lambda x: x.sum(), X, batch_invariant=True)
"""


def test_a_test_can_ask_for_independent_rows(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FIXTURE)
    result = pytester.runpytest_inprocess("-q", "--msprobe-device=cpu")
    result.assert_outcomes(passed=2, failed=3)
    result.stdout.fnmatch_lines(
        [
            "*depends on the batch: * parts of the batch differ from the whole, first row 0 of 12 alone*",
            "*batch_invariant: the arguments have 12, 30 rows; pass two rows or more, as many in each",
            "*batch_invariant: no result has a row for each row of the batch",
        ]
    )

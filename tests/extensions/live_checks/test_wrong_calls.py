"""Wrong calls are named, whatever is wrong with them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import pytest_msprobe
from pytest_msprobe.run.item import PrecisionError, PrecisionWarning
from tests.support.dumps.faulty_calls import Changed, ChangedKernel, with_gradient_times

WRONG_SOFTMAX = Changed(F.softmax, lambda result: result + 0.01 * result.detach())


def step() -> torch.Tensor:
    torch.manual_seed(0)
    weight = torch.randn(4, 3, requires_grad=True)
    loss = F.softmax(torch.randn(5, 4) @ weight, dim=-1).square().sum()
    loss.backward()
    return loss


def names(checks: pytest_msprobe.LiveChecks) -> list[str]:
    return [result.record for result in checks.failed]


def test_a_wrong_result_is_found_where_it_was_called() -> None:
    warns = pytest.warns(PrecisionWarning, match=r"Functional\.softmax\.0\.forward")
    with WRONG_SOFTMAX, warns as reported, pytest_msprobe.live() as checks:
        step()
    assert names(checks) == ["Functional.softmax.0.forward"]
    assert f"{__file__}:" in checks.failed[0].notes[0]
    assert reported[0].filename == __file__


def test_a_wrong_gradient_is_found_though_the_result_is_right() -> None:
    wrong = Changed(torch.Tensor.square, with_gradient_times(1.01))
    with wrong, pytest_msprobe.live(on_failure="stop") as checks, pytest.raises(PrecisionError, match="grad"):
        step()
    assert names(checks) == ["Tensor.square.0.backward"]


def test_the_gradient_of_a_tensor_that_is_passed_twice_is_judged() -> None:
    x = torch.randn(5, requires_grad=True)
    wrong = Changed(torch.Tensor.mul, with_gradient_times(1.01))
    with wrong, pytest_msprobe.live(on_failure="stop") as checks, pytest.raises(PrecisionError):
        (x * x).sum().backward()
    assert names(checks) == ["Tensor.__mul__.0.backward"]


def test_what_a_call_writes_to_is_judged() -> None:
    # The right result, and an argument that was left as it was.
    wrong = Changed(torch.Tensor.add_, lambda result: (result.clone(), result.zero_())[0])
    with wrong, pytest.warns(PrecisionWarning), pytest_msprobe.live(apis=["add_"]) as checks:
        torch.zeros(3).add_(torch.ones(3))
    assert names(checks) == ["Tensor.add_.0.forward"]


def test_a_random_call_is_judged_by_what_it_drew() -> None:
    wrong = Changed(F.dropout, lambda result: result * 1.5)
    with wrong, pytest.warns(PrecisionWarning), pytest_msprobe.live() as checks:
        F.dropout(torch.ones(1000), 0.5)
    assert names(checks) == ["Functional.dropout.0.forward"]


def test_a_wrong_kernel_is_found_at_level_aten() -> None:
    wrong = ChangedKernel(torch.ops.aten.asinh.default, lambda result: result * 1.01)
    with wrong, pytest.warns(PrecisionWarning), pytest_msprobe.live(level="aten") as checks:
        torch.asinh(torch.ones(3))
    assert names(checks) == ["Aten.asinh.default.0.forward"]


def test_one_failure_at_the_end_reports_all() -> None:
    both = r"(?s)softmax\.0\.forward is wrong.*Then:.*Tensor\.square\.0\.forward"
    square = Changed(torch.Tensor.square, lambda result: result * 1.01)
    with WRONG_SOFTMAX, square, pytest.raises(PrecisionError, match=both), pytest_msprobe.live(on_failure="fail"):
        step()


def test_stopping_leaves_the_training_at_the_wrong_call() -> None:
    with WRONG_SOFTMAX, pytest.raises(PrecisionError) as stopped, pytest_msprobe.live(on_failure="stop"):
        step()
    assert "F.softmax(" in "".join(str(entry.statement) for entry in stopped.traceback)

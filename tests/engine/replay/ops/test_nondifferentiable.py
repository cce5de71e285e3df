"""Backward records of matrices at which golden's results say that there is no gradient, and of ones next to them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from msprobe_standards import Policy
from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.replay.ops.canonical_factors import equal_eigenvalues, equal_singular_values
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.results.outcomes import SkipReason
from pytest_msprobe.results.result import DirectionResult
from tests.support.replays.functions import check_function

linalg = torch.linalg


def svd(matrix: torch.Tensor) -> Any:
    return linalg.svd(matrix, full_matrices=False)


def with_values(*values: float, rows: int = 0) -> torch.Tensor:
    size = len(values)
    generator = torch.Generator().manual_seed(0)
    shapes = ((max(rows, size), size), (size, size))
    left, right = (linalg.qr(torch.randn(shape, dtype=torch.float64, generator=generator))[0] for shape in shapes)
    made = left * torch.tensor(values, dtype=torch.float64) @ (right.mT if rows else left.mT)
    return made.float()


class Scaling(SimDevice):
    """Gives gradients that are so many times the right ones."""

    def __init__(self, times: float) -> None:
        self._times = times

    def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        found = func(*args, **kwargs)
        return tuple(each * self._times for each in found) if record.endswith(".backward") else found


@pytest.fixture
def backward(default_policy: Policy) -> Any:
    """Judge the gradient of a function of a matrix."""

    def run(function: Any, matrix: torch.Tensor, times: float = 1.0) -> DirectionResult:
        setup = ReplayConfig(Scaling(times), default_policy, TorchFramework())
        _, result = check_function(function, (matrix.requires_grad_(),), {}, name="Call.0", setup=setup, backward=True)
        return result

    return run


@pytest.mark.parametrize(
    ("function", "matrix", "reason"),
    [
        (svd, torch.eye(4), "two singular values are equal"),
        (svd, with_values(3, 2, 2, 1), "two singular values are equal"),
        (svd, with_values(3, 2, 1, 0, rows=6), "a singular value is zero"),
        (linalg.eigh, torch.eye(3), "two eigenvalues are equal"),
        (linalg.eigh, torch.ones(6, 6), "two eigenvalues are equal"),
        (linalg.eig, torch.diag(torch.tensor([2.0, 1.0, 2.0])), "two eigenvalues are equal"),
        (linalg.slogdet, torch.ones(3, 3), "the matrix is singular"),
        (torch.logdet, torch.zeros(2, 3, 3), "the matrix is singular"),
    ],
)
def test_a_gradient_that_does_not_exist_is_not_judged(
    backward: Any, function: Any, matrix: torch.Tensor, reason: str
) -> None:
    result = backward(function, matrix.clone())
    assert result.skip is SkipReason.UNSPECIFIED
    assert result.verdict.reason.endswith(f"the gradient does not exist: {reason}")


@pytest.mark.parametrize(("times", "expected"), [(1.0, "pass"), (1.5, "fail")])
@pytest.mark.parametrize(
    ("function", "matrix"),
    [
        (svd, with_values(3, 2, 1.9, 1)),
        (svd, with_values(3, 2, 1, 0)),
        (linalg.eigh, with_values(3, 2, 1.9, 1)),
        (linalg.slogdet, with_values(3, 2, 1.9, 1e-3)),
    ],
)
def test_a_matrix_whose_values_are_apart_is_judged(
    backward: Any, function: Any, matrix: torch.Tensor, times: float, expected: str
) -> None:
    assert backward(function, matrix.clone(), times).verdict.outcome == expected


def test_equal_values_have_gradients_where_none_arrives_for_their_vectors() -> None:
    equal = (torch.eye(3), torch.ones(3), torch.eye(3))
    assert not equal_singular_values(equal, equal, {1})
    assert equal_singular_values(equal, equal, {1, 2})
    assert not equal_eigenvalues(equal[1:], equal[1:], {0})


def test_one_matrix_of_a_batch_is_enough() -> None:
    values, vectors = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 2.0]]), torch.eye(3).expand(2, 3, 3)
    assert equal_eigenvalues((values, vectors), (values, vectors), {1})


def test_a_function_with_a_known_name_and_other_outputs_is_judged(backward: Any) -> None:
    def eigh(x: torch.Tensor) -> torch.Tensor:
        return x.sum()

    assert backward(eigh, torch.eye(3)).verdict.outcome == "pass"

"""Checks of factorizations and solvers, on devices that compute them well another way, and on ones that do not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from msprobe_standards import Policy
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.results.result import DirectionResult
from tests.support.replays.devices import Altered
from tests.support.replays.functions import check_function

linalg = torch.linalg


def ill_conditioned(size: int, condition: float, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    left, right = (linalg.qr(torch.randn(size, size, dtype=torch.float64, generator=generator))[0] for _ in range(2))
    values = torch.logspace(0, -torch.tensor(condition).log10().item(), size, dtype=torch.float64)
    return (left * values @ right).float()


@pytest.fixture
def judged(default_policy: Policy) -> Any:
    """Check a function of a matrix, with gradients, on a device that calls another function in its place."""

    def run(function: Any, other: Any, *args: torch.Tensor) -> list[DirectionResult]:
        def alter(func: Any, given: Any, kwargs: Any) -> Any:
            # Only the function is replaced, not torch.autograd.grad.
            return other(*given) if func is function else func(*given, **kwargs)

        leaves = tuple(each.clone().requires_grad_() for each in args)
        setup = ReplayConfig(Altered(alter), default_policy, TorchFramework())
        return check_function(function, leaves, {}, name="Call.0", setup=setup, backward=True)

    return run


def in_float64(function: Any) -> Any:
    def computed(*args: torch.Tensor) -> Any:
        output = function(*(each.double() for each in args))
        return output.float() if isinstance(output, torch.Tensor) else tuple(each.float() for each in output)

    return computed


def outcomes(results: list[DirectionResult]) -> list[str]:
    return [result.verdict.outcome for result in results]


@pytest.mark.parametrize("condition", [3.0, 1e5])
@pytest.mark.parametrize(
    "function",
    [linalg.inv, linalg.svd, linalg.qr, linalg.det, linalg.pinv, linalg.matrix_exp],
    ids=lambda f: f.__name__,
)
def test_a_device_that_rounds_a_better_result_is_right(judged: Any, function: Any, condition: float) -> None:
    assert outcomes(judged(function, in_float64(function), ill_conditioned(6, condition))) == ["pass", "pass"]


def test_vectors_of_other_signs_are_right_with_their_gradients(judged: Any) -> None:
    signs = torch.tensor([1.0, -1, -1, 1, -1, 1])

    def other(matrix: torch.Tensor) -> Any:
        u, values, v = linalg.svd(matrix)
        return u * signs, values, signs[:, None] * v

    assert outcomes(judged(linalg.svd, other, ill_conditioned(6, 10.0))) == ["pass", "pass"]


def backward_error(function: Any, units: float) -> Any:
    def erring(*args: torch.Tensor) -> Any:
        generator = torch.Generator().manual_seed(7)
        signs = torch.randint(0, 2, args[0].shape, generator=generator) * 2 - 1
        return function(
            args[0].double() * (1 + units * 2.0**-24 * signs), *(each.double() for each in args[1:])
        ).float()

    return erring


@pytest.mark.parametrize(("units", "expected"), [(4.0, "pass"), (3000.0, "fail")])
def test_an_ill_conditioned_solution_is_excused_as_far_as_its_inputs_rounding_goes(
    judged: Any, units: float, expected: str
) -> None:
    matrix, right = ill_conditioned(6, 1e4), torch.ones(6, 2)
    forward, _ = judged(linalg.solve, backward_error(linalg.solve, units), matrix, right)
    assert forward.verdict.outcome == expected


@pytest.mark.parametrize("function", [linalg.inv, linalg.pinv, linalg.det], ids=lambda f: f.__name__)
@pytest.mark.parametrize(("wrong", "expected"), [(0.0, "pass"), (1e-3, "fail")])
def test_an_ill_conditioned_matrix_excuses_no_other_of_its_batch(
    judged: Any, function: Any, wrong: float, expected: str
) -> None:
    singular, regular = ill_conditioned(6, 1e6), ill_conditioned(6, 2.0)
    batch = torch.stack([singular @ singular.mT, regular @ regular.mT])

    def other(matrices: torch.Tensor) -> torch.Tensor:
        result = in_float64(function)(matrices)
        first = backward_error(function, 4.0)(matrices)[0]
        return torch.stack([first, result[1] * (1 + wrong)])

    forward, _ = judged(function, other, batch)
    assert forward.verdict.outcome == expected


@pytest.mark.parametrize("spoil", ["lean", "long"])
def test_an_ill_conditioned_basis_that_is_not_orthonormal_is_wrong(judged: Any, spoil: str) -> None:
    def spoiled(matrix: torch.Tensor) -> Any:
        q, r = linalg.qr(matrix)
        wrong = q.clone()
        wrong[:, 1] += 0.002 * q[:, 0 if spoil == "lean" else 1]
        return wrong, r

    # The last columns of Q move by more than a hundredth where the matrix moves by one rounding.
    forward, _ = judged(linalg.qr, spoiled, ill_conditioned(6, 1e6))
    assert forward.verdict.outcome == "fail"
    assert forward.deciding is not None
    assert forward.deciding.path == "product.QhQ"


def test_a_solution_of_a_function_with_a_known_name_and_other_outputs_is_judged(default_policy: Policy) -> None:
    def svd(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, x * 3

    setup = ReplayConfig(Altered(lambda func, args, kwargs: func(*args, **kwargs)), default_policy, TorchFramework())
    (result,) = check_function(svd, (torch.ones(3, 3),), {}, name="Call.0", setup=setup)
    assert result.verdict.outcome == "pass"

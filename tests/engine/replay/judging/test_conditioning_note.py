from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from msprobe_standards import Policy
from pytest_msprobe.engine.replay.calls.arguments import Arguments
from pytest_msprobe.engine.replay.calls.golden import golden_side
from pytest_msprobe.engine.replay.judging import run_outputs
from pytest_msprobe.engine.replay.trials import trial
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.replay.trials.input_perturbation import input_unit_roundoff, perturbed_side
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.engine.values.pytree import map_tensors
from pytest_msprobe.reports.github import failure_text
from pytest_msprobe.results.result import DirectionResult
from tests.support.replays.devices import Altered
from tests.support.replays.functions import check_function


def arguments(*args: Any) -> Arguments:
    return Arguments(args, {}, frozenset())


def hilbert(size: int) -> torch.Tensor:
    places = torch.arange(size)
    return 1.0 / (places[:, None] + places + 1)


def thousandth_too_large(func: Any, args: Any, kwargs: Any) -> Any:
    return map_tensors(lambda tensor: tensor * 1.001 if tensor.is_floating_point() else tensor, func(*args, **kwargs))


@pytest.fixture
def judged(default_policy: Policy) -> Callable[..., list[DirectionResult]]:
    """Check a function on a device whose results are a thousandth too large."""

    def run(function: Any, *args: Any, backward: bool = False) -> list[DirectionResult]:
        setup = ReplayConfig(Altered(thousandth_too_large), default_policy, TorchFramework())
        return check_function(function, args, {}, name="Call.0", setup=setup, backward=backward)

    return run


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_inputs_move_by_one_rounding_unit_of_their_own_dtype(dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, 1.0, -3.0, torch.inf, 7.5, torch.nan], dtype=dtype)
    moved = perturbed_side(golden_side("exp", arguments(x)), 0, "Torch.exp.0", 0).put(x)
    unit = torch.finfo(dtype).eps / 2
    assert moved[0] == 0
    assert moved[3] == torch.inf
    assert moved[5].isnan()
    change = (moved - x)[[1, 2, 4]] / x[[1, 2, 4]] / unit
    assert change.abs().allclose(torch.ones(3, dtype=change.dtype))


def test_inputs_that_golden_cannot_raise_move_to_a_neighbour() -> None:
    x = torch.tensor([0.0, 1.5, -2.5], dtype=torch.float64)
    moved = perturbed_side(golden_side("exp", arguments(x)), 0, "Torch.exp.0", 0).put(x)
    assert moved[0] == 0
    assert ((moved - x)[1:].abs() == torch.tensor([2.0**-52, 2.0**-51])).all()


def test_both_parts_of_a_complex_number_move() -> None:
    x = torch.full((50,), 1 + 2j)
    change = (
        perturbed_side(golden_side("exp", arguments(x)), 0, "Torch.exp.0", 0).put(x) / torch.tensor([1, 2j]).sum() - 1
    )
    assert len(set(change.tolist())) == 4


def test_integers_and_bools_stay() -> None:
    for x in (torch.arange(5), torch.tensor([True, False])):
        assert torch.equal(perturbed_side(golden_side("add", arguments(x)), 0, "Torch.add.0", 0).put(x), x)


def test_draws_differ_and_come_again() -> None:
    x = torch.randn(100)
    side = golden_side("exp", arguments(x))
    first, again, second = (perturbed_side(side, 0, "Torch.exp.0", draw).put(x) for draw in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


def test_the_unit_is_that_of_the_coarsest_input() -> None:
    assert (
        input_unit_roundoff(arguments(torch.ones(2), torch.ones(2, dtype=torch.bfloat16), torch.ones(2).int()))
        == 2.0**-8
    )
    assert input_unit_roundoff(arguments(torch.arange(3))) == 0


def test_a_failure_says_that_its_call_is_ill_conditioned_and_what_errors_to_expect(judged: Any) -> None:
    differences = torch.tensor([[1.0, -1.0 + 2.0**-12]]).expand(50, 2).contiguous()
    (result,) = judged(torch.matmul, differences, torch.tensor([[1.0], [1.0]]))
    assert result.verdict.outcome == "fail"
    # The condition number of each is (|a| + |b|) / |a + b| = 2 ** 13; a draw of signs shows a part of it.
    (factor,) = result.extras[run_outputs.AMPLIFICATION].values()
    assert 100 < factor < 4 * 2**13
    errors = f"{factor * 2**-24:.1g}"
    expected = f" times, so relative errors of {errors} are to be expected: it is ill-conditioned\n"
    assert expected in failure_text(result, "pytest")


def test_a_factor_that_explains_nothing_is_not_in_the_text(judged: Any) -> None:
    (result,) = judged(torch.exp, torch.linspace(-1, 1, 50))
    # The relative condition of exp is |x|.
    (factor,) = result.extras[run_outputs.AMPLIFICATION].values()
    assert 0.2 < factor < 1
    assert "amplifies" not in failure_text(result, "pytest")


def test_a_wrong_gradient_has_a_factor_too(judged: Any) -> None:
    _, result = judged(torch.sin, torch.linspace(0.5, 1, 50).requires_grad_(), backward=True)
    assert result.verdict.outcome == "fail"
    assert 0 < result.extras[run_outputs.AMPLIFICATION]["grad.args.0"] < 3


def test_a_pass_costs_no_run_of_moved_inputs(default_policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("moved")

    monkeypatch.setattr(trial, "perturbed_side", refuse)
    setup = ReplayConfig(Altered(lambda func, args, kwargs: func(*args, **kwargs)), default_policy, TorchFramework())
    (result,) = check_function(torch.linalg.inv, (hilbert(5),), {}, name="Call.0", setup=setup)
    assert result.verdict.outcome == "pass"


@pytest.mark.parametrize("error", [RuntimeError("singular"), MemoryError()])
def test_a_failure_stays_as_it_is_where_golden_cannot_run_again(judged: Any, error: Exception) -> None:
    calls: list[int] = []

    def exp(x: torch.Tensor) -> torch.Tensor:
        if x.dtype == torch.float64:
            calls.append(1)
            if len(calls) > 1:
                raise error
        return x.exp()

    (result,) = judged(exp, torch.linspace(-1, 1, 50))
    assert result.verdict.outcome == "fail"
    assert result.extras == {}


def test_nothing_is_run_again_where_memory_is_short(judged: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "fits_perturbed_runs", lambda *_: False)
    (result,) = judged(torch.exp, torch.linspace(-1, 1, 50))
    assert result.verdict.outcome == "fail"
    assert result.extras == {}


def test_nothing_is_run_again_for_a_record_that_took_long(judged: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_outputs, "_LONGEST_EXPLAINED", 0.0)
    (result,) = judged(torch.exp, torch.linspace(-1, 1, 50))
    assert result.extras == {}

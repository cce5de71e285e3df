"""Gradients of a function that has its own backward are held against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from msprobe_hooks import record
from msprobe_hooks.dump.reader import read_dump
from msprobe_standards import Policy
from pytest_msprobe import check_call
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.replay.call import read_call
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.results.result import LITTLE_JUDGED, DirectionResult
from tests.support.replays.functions import check_function


@pytest.fixture
def backward_of(default_policy: Policy) -> Callable[..., DirectionResult]:
    def check(function: Callable[..., Any], *args: Any, golden: Any = None) -> DirectionResult:
        setup = ReplayConfig(CpuDevice(), default_policy, TorchFramework())
        forward, backward = check_function(function, args, {}, name="f", setup=setup, golden=golden, backward=True)
        assert forward.outcome == "pass"
        return backward

    return check


def swish(factor: float = 1.0) -> Callable[[Tensor, Tensor], Tensor]:
    """Return x sigmoid(beta x), whose backward has so many times the derivative of the sigmoid."""

    class Swish(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, beta: Tensor) -> Tensor:
            ctx.save_for_backward(x, beta)
            return x * torch.sigmoid(beta * x)

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
            (x, beta), [gradient] = ctx.saved_tensors, gradients
            s = torch.sigmoid(beta * x)
            return gradient * (s + factor * beta * x * s * (1 - s)), (gradient * x * x * s * (1 - s)).sum()

    return Swish.apply


class Layer(torch.nn.Module):
    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.linear, self.beta, self.function = torch.nn.Linear(6, 6), torch.nn.Parameter(torch.ones(())), function

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.function(self.linear(x), self.beta))


def unary(forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    class Unary(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            return gradients[0] * backward(*ctx.saved_tensors)

    return Unary.apply


@pytest.fixture
def cube() -> Iterator[Any]:
    @torch.library.custom_op("own_backward::cube", mutates_args=())
    def own_cube(x: Tensor) -> Tensor:
        return x**3

    own_cube.register_autograd(
        lambda ctx, gradient: 2 * ctx.saved_tensors[0] ** 2 * gradient,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    yield torch.ops.own_backward.cube
    own_cube._lib._destroy()


def x(dtype: torch.dtype = torch.float32) -> Tensor:
    torch.manual_seed(3)
    return torch.randn(20, 6).to(dtype).requires_grad_()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_wrong_backward_fails_and_a_right_one_passes(dtype: torch.dtype, backward_of: Any) -> None:
    beta = torch.tensor(1.5, dtype=dtype).requires_grad_()
    right, wrong = (backward_of(swish(factor), x(dtype), beta) for factor in (1.0, 0.9))
    assert right.outcome == "pass", right.reason
    assert LITTLE_JUDGED not in right.extras
    failed = [output.path for output in wrong.outputs if output.verdict.outcome == "fail"]
    assert failed == ["finite_differences.args.0"]
    assert "the backward of Swish gives " in wrong.reason


@pytest.mark.parametrize("factor", [1.0, 0.9])
def test_a_backward_inside_of_a_module_is_found(factor: float, backward_of: Any) -> None:
    assert backward_of(Layer(swish(factor)), x().detach()).outcome == ("pass" if factor == 1 else "fail")


def test_the_backward_of_a_custom_operator_is_found(cube: Any, backward_of: Any) -> None:
    found = backward_of(cube, x())
    assert found.outcome == "fail"
    assert "finite_differences.args.0" in [output.path for output in found.outputs]


def test_golden_that_is_the_function_itself_is_no_golden(backward_of: Any) -> None:
    wrong = swish(0.9)
    assert backward_of(wrong, x(), torch.tensor(1.5), golden=wrong).outcome == "fail"


def test_a_golden_that_has_the_gradient_which_is_meant_is_taken(backward_of: Any) -> None:
    reversal = unary(lambda x: x * 1, lambda x: -torch.ones_like(x))
    assert "pass golden=" in backward_of(reversal, x()).reason
    assert backward_of(reversal, x(), golden=lambda x: x - 2 * (x - x.detach())).outcome == "pass"


def test_a_kink_between_the_inputs_is_no_fault(backward_of: Any) -> None:
    found = backward_of(unary(torch.relu, lambda x: (x > 0).to(x.dtype)), x())
    assert found.outcome == "pass", found.reason
    assert LITTLE_JUDGED not in found.extras


@pytest.mark.parametrize("elements", [2**18 - 1, 2**18])
def test_a_wrong_backward_fails_for_large_inputs_too(elements: int, backward_of: Any) -> None:
    wrong = unary(torch.square, lambda x: 3 * x)
    torch.manual_seed(0)
    assert backward_of(wrong, torch.randn(elements).requires_grad_()).outcome == "fail"


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (lambda x: x.clamp(-1, 1), [1.0, -1.0, 0.5, 2.0]),
        (lambda x: x.view(-1, 2).max(-1).values, [1.0, 1.0, 2.0, 3.0]),
        (lambda x: x.abs(), [0.0, 1.0, 2.0, -3.0]),
    ],
)
def test_a_kink_at_the_inputs_is_no_fault(function: Any, given: list[float], backward_of: Any) -> None:
    class Kinked(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return function(x)

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            # Of the slopes on both sides, the one above.
            (x,) = ctx.saved_tensors
            rows = [function(x + 1e-3 * unit) - function(x) for unit in torch.eye(len(x), dtype=x.dtype)]
            return torch.stack([(row * gradients[0]).sum() / 1e-3 for row in rows]).round(decimals=9)

    found = backward_of(Kinked.apply, torch.tensor(given, dtype=torch.float64).requires_grad_())
    assert found.outcome == "pass", found.reason


@pytest.mark.parametrize("rounded", [torch.round, torch.sign])
def test_a_straight_through_estimator_in_a_sum_is_no_fault(rounded: Any, backward_of: Any) -> None:
    estimator = unary(rounded, torch.ones_like)
    torch.manual_seed(0)
    found = backward_of(lambda x: estimator(x) + x * x, torch.randn(50).requires_grad_())
    assert found.outcome == "pass", found.reason
    assert "its result jumps near these inputs" in found.extras[LITTLE_JUDGED]


def test_a_gradient_that_is_wrong_at_zeros_alone_fails(backward_of: Any) -> None:
    wrong = unary(lambda x: 3 * x, lambda x: 3.0 * (x != 0))
    assert backward_of(wrong, torch.relu(x().detach()).requires_grad_()).outcome == "fail"


def test_an_input_that_cannot_be_judged_leaves_the_failure_of_another(backward_of: Any) -> None:
    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * x + (4 * y).round() / 4

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
            return gradients[0] * 3 * ctx.saved_tensors[0], gradients[0]

    found = backward_of(Sum.apply, x(), x())
    assert [output.path for output in found.outputs if output.verdict.outcome == "fail"] == [
        "finite_differences.args.0"
    ]


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (unary(lambda x: (4 * x).round() / 4, torch.ones_like), "its result does not change with its inputs"),
        (unary(lambda x: (2**30 * x).frac(), torch.ones_like), "it is not smooth enough"),
    ],
)
def test_what_differences_cannot_judge_is_said_to_be_judged_by_itself(
    function: Any, why: str, backward_of: Any
) -> None:
    found = backward_of(function, x())
    assert found.outcome == "pass", found.reason
    reason = found.extras[LITTLE_JUDGED]
    assert reason.startswith("the backward of Unary was judged by itself, not by finite differences: ")
    assert why in reason


def test_the_formulas_of_torch_are_not_differentiated_again(backward_of: Any) -> None:
    runs = []

    def counted(x: Tensor) -> Tensor:
        runs.append(x)
        return torch.tanh(x)

    assert [output.path for output in backward_of(counted, x()).outputs] == ["grad.args.0"]
    assert len(runs) == 2


def test_a_recorded_operator_without_a_reference_is_said_to_be_judged_by_itself(
    cube: Any, default_policy: Policy, tmp_path: Path
) -> None:
    with record(tmp_path, level="L1", custom_op_namespaces=["own_backward"]):
        cube(x()).sum().backward()
    dump = read_dump(next(tmp_path.rglob("dump.json")))
    call = read_call(dump, next(name for name in dump.api_names if "cube.0.forward" in name))
    backward = check_call(call, device=CpuDevice(), policy=default_policy).backward
    assert backward is not None
    assert backward.outcome == "pass"
    assert backward.extras[LITTLE_JUDGED].endswith("own_backward_cube_default, which was judged by itself")

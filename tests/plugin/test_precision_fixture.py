from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest

GELU = """
import pytest
import torch
from pytest_msprobe import precision_standard


class Square(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        return FACTOR * x * gradient


FACTOR = 2.0
"""


def run(pytester: pytest.Pytester, body: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(test_mine=GELU + body)
    return pytester.runpytest_inprocess("test_mine.py", "--msprobe-device=sim", "--strict-markers", *arguments)


CUSTOM_FUNCTION = """
def test_square(precision):
    x = torch.linspace(-2, 2, 100).bfloat16().requires_grad_()
    precision.check(Square.apply, x, golden=lambda x: x.square(), backward=True)
"""


def test_a_right_autograd_function_passes(pytester: pytest.Pytester) -> None:
    run(pytester, CUSTOM_FUNCTION).assert_outcomes(passed=1)


def test_an_autograd_function_with_a_wrong_backward_fails_at_the_gradient(pytester: pytest.Pytester) -> None:
    result = run(pytester, CUSTOM_FUNCTION.replace("def test", "FACTOR = 2.05\n\ndef test"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*test_square.backward is wrong", "*grad.args.0 torch.bfloat16 (100,): fail by *"])


def test_the_failure_names_a_command_that_reruns_this_test(pytester: pytest.Pytester) -> None:
    body = CUSTOM_FUNCTION.replace("def test", "FACTOR = 3.0\n\ndef test") + "\ndef test_other(): pass\n"
    result = run(pytester, body, "--msprobe-seed=7")
    result.assert_outcomes(failed=1, passed=1)
    # Where CI is set, pytest repeats the whole text in its short summary.
    (command,) = {match[1] for line in result.outlines if (match := re.search("Run this item alone: (.*)", line))}
    program, *arguments = shlex.split(command)
    assert program == "pytest"
    assert "--msprobe-seed 7" in command
    pytester.runpytest_inprocess(*arguments).assert_outcomes(failed=1)


KERNEL = """
def kernel(x, scale=1.0):
    return torch.softmax(x * scale, -1) * FACTOR


def reference(x, scale=1.0):
    return torch.softmax(x * scale, -1) * 2


def test_kernel(precision):
    precision.check(kernel, torch.randn(8, 16), scale=0.5, golden=reference)
"""


def test_a_kernel_is_judged_against_its_golden_definition(pytester: pytest.Pytester) -> None:
    run(pytester, KERNEL).assert_outcomes(passed=1)
    result = run(pytester, KERNEL.replace("def kernel", "FACTOR = 2.001\n\ndef kernel"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*output.0 torch.float32 (8, 16): fail by *"])


MODULE = """
def block():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.BatchNorm1d(16))


def test_module(precision):
    precision.check(block(), torch.randn(32, 8).requires_grad_(), backward=True)
"""


def test_a_module_passes_with_the_gradients_of_its_parameters(pytester: pytest.Pytester) -> None:
    run(pytester, MODULE).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("record", "position", "path"),
    [("backward", 0, "grad.args.0"), ("backward", 1, "grad.kwargs.module_state.0.weight"), ("forward", None, "output")],
)
def test_a_wrong_gradient_of_a_module_names_the_parameter(
    pytester: pytest.Pytester, make_device: Callable[[str], None], record: str, position: int | None, path: str
) -> None:
    corrupted = (
        "result + 1" if position is None else f"tuple(g * (1 + 0.1 * (i == {position})) for i, g in enumerate(result))"
    )
    make_device(f"if record == 'test_module.{record}': result = {corrupted}")
    result = run(pytester, MODULE, "--msprobe-device=faulty")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*test_module.{record} is wrong", f"*{path}* torch.float32 *: fail by *"])


MARKED = """
@precision_standard({arguments})
def test_marked(precision):
    precision.check(lambda x: x * 1.001, torch.ones(4), golden=lambda x: x)
"""


@pytest.mark.parametrize(
    ("arguments", "outcome"),
    [
        ('"ulp", max_ulp=2', "failed"),
        ('"ulp", max_ulp=10000, max_bias=10000', "passed"),
        ('"binary_consistency"', "failed"),
    ],
)
def test_the_marker_chooses_the_standard(pytester: pytest.Pytester, arguments: str, outcome: str) -> None:
    for body in (
        MARKED.format(arguments=arguments),
        MARKED.format(arguments=arguments).replace("@precision_standard", "@pytest.mark.precision_standard"),
    ):
        result = run(pytester, body)
        result.assert_outcomes(**{outcome: 1})
        if outcome == "failed":
            result.stdout.fnmatch_lines([f"*: fail by {arguments.split(chr(34))[1]}"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('"upl"', "unknown standard 'upl' (known: absolute_threshold, accumulative_error, "),
        ('"ulp", max=2', "standard 'ulp' has no limit 'max' (it has: max_ulp"),
        ('"ulp", max_ulp="few"', "limit 'max_ulp' of standard 'ulp' is 'few'; it must be a number"),
    ],
)
def test_a_wrong_marker_says_what_is_valid(pytester: pytest.Pytester, arguments: str, said: str) -> None:
    result = run(pytester, MARKED.format(arguments=arguments))
    assert result.parseoutcomes().get("passed", 0) == 0
    assert result.ret != 0
    assert said in result.stdout.str() + result.stderr.str()
    assert "test_mine.py::test_marked: precision_standard: " in result.stdout.str() + result.stderr.str()


def test_arguments_are_left_as_they_were(pytester: pytest.Pytester) -> None:
    run(
        pytester,
        """
def test_in_place(precision):
    x = torch.zeros(4)
    precision.check(lambda x: x.add_(1), x)
    assert x.sum() == 0
""",
    ).assert_outcomes(passed=1)


def test_check_returns_what_came_of_forward_and_backward(pytester: pytest.Pytester) -> None:
    run(
        pytester,
        """
def test_results(precision):
    forward, backward = precision.check(torch.tanh, torch.randn(4).requires_grad_(), backward=True)
    assert (forward.record, forward.verdict.outcome) == ("test_results.forward", "pass")
    assert (backward.record, backward.verdict.outcome) == ("test_results.backward", "pass")
    (forward,) = precision.check(torch.tanh, torch.randn(4))
""",
    ).assert_outcomes(passed=1)


def test_a_function_that_raises_on_the_device_alone_fails(
    pytester: pytest.Pytester, make_device: Callable[[str], None]
) -> None:
    make_device("raise RuntimeError('the kernel exploded')")
    result = run(
        pytester,
        "def test_it(precision):\n    precision.check(torch.tanh, torch.randn(4))\n",
        "--msprobe-device=faulty",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*the API raises on the device, though the CPU computes it: RuntimeError: the kernel*"]
    )


def test_what_the_device_does_not_implement_skips(
    pytester: pytest.Pytester, make_device: Callable[[str], None]
) -> None:
    make_device("raise NotImplementedError('no tanh here')")
    result = run(
        pytester,
        "def test_it(precision):\n    precision.check(torch.tanh, torch.randn(4))\n",
        "--msprobe-device=faulty",
        "-rs",
    )
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*the device does not implement this API for these dtypes: *no tanh here*"])


def test_failures_show_the_users_code_and_not_ours(pytester: pytest.Pytester) -> None:
    result = run(pytester, MARKED.format(arguments='"ulp", max_ulp=2'))
    shown: Any = result.stdout.str()
    assert "precision.check(lambda x: x * 1.001" in shown
    assert "def _report" not in shown


def test_an_unusable_device_is_named(pytester: pytest.Pytester) -> None:
    result = run(
        pytester, "def test_it(precision):\n    precision.check(torch.tanh, torch.randn(4))\n", "--msprobe-device=npu"
    )
    assert result.ret != 0
    assert "device 'npu': the package torch_npu is not installed" in result.stdout.str() + result.stderr.str()

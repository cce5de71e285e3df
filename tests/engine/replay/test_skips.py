"""Records that cannot be judged, and what is said of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pytest_msprobe.results.outcomes import SkipReason


def test_a_number_that_no_dtype_holds_is_what_the_cpu_rejects(recorder: Any, check: Any) -> None:
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [3, 4], "Max": 1, "Min": 0}
    call = recorder.keep("Torch.add.9", {"input_args": [tensor, {"type": "int", "value": 10**30}]})
    assert check(call).forward.skip is SkipReason.REJECTED_INPUTS


def test_what_returns_and_changes_nothing_is_a_skip_and_no_pass(recorder: Any, check: Any) -> None:
    call = recorder.Torch._assert_async(torch.tensor(1))
    assert check(call).forward.skip is SkipReason.NOT_AN_OPERATION


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Distributed.all_reduce.0", SkipReason.COLLECTIVE),
        ("Torch.no_such.0", SkipReason.UNKNOWN_API),
        ("NPU.npu_no_such.0", SkipReason.NO_REFERENCE),
        ("Tensor.numpy.0", SkipReason.NOT_AN_OPERATION),
    ],
)
def test_what_cannot_be_judged_is_a_skip_in_both_directions(
    recorder: Any, check: Any, name: str, reason: SkipReason
) -> None:
    element = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0, "Min": 0.0}
    result = check(recorder.keep(name, {"input_args": [element]}, {"input": [element], "output": []}))
    assert (result.forward.skip, result.backward.skip) == (reason, reason)
    assert result.forward.verdict.outcome == "skip"


def test_a_backward_without_anything_to_differentiate_is_a_skip(recorder: Any, check: Any) -> None:
    element = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0, "Min": 0.0}
    call = recorder.keep("Torch.exp.0", {"input_args": [element]}, {"input": [element], "output": []})
    result = check(call)
    assert result.forward.verdict.outcome == "pass"
    assert result.backward.skip is SkipReason.NO_GRADIENT


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64", "complex32"])
@pytest.mark.parametrize("api", ["add", "mul", "exp", "matmul", "sum"])
def test_dtypes_that_the_cpu_hardly_knows_pass_or_skip_with_a_reason(
    recorder: Any, check: Any, dtype: str, api: str
) -> None:
    element = {"type": "torch.Tensor", "dtype": f"torch.{dtype}", "shape": [4, 4], "Max": None, "Min": None}
    operands = [element] * (2 if api in ("add", "mul", "matmul") else 1)
    direction = check(recorder.keep(f"Torch.{api}.0", {"input_args": operands, "output": [element]})).forward
    assert direction.verdict.outcome in ("pass", "skip"), direction.verdict
    if direction.verdict.outcome == "skip":
        allowed = {SkipReason.UNSUPPORTED, SkipReason.NO_GOLDEN, SkipReason.REJECTED_INPUTS}
        assert direction.skip in allowed
        assert len(direction.verdict.reason) > len(direction.skip.value)

"""Sparse, quantized and float8 tensors as results and gradients of a check."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support.dumps.dump_files import forward, tensor, value

BY_ONE = forward(tensor(6, low=1.0, high=2.0))


def plus_one(func: Any, args: Any, kwargs: Any) -> Any:
    """Compute on inputs that are one larger."""
    return func(*(each + 1 if torch.is_tensor(each) and each.is_floating_point() else each for each in args), **kwargs)


SPARSE = forward(
    tensor(2, 6, dtype="int64", low=0, high=1),
    tensor(6, low=1.0, high=2.0),
    [value(2), value(2)],
    output=[tensor(2, 2, low=None, high=None)],
)
QUANTIZED = forward(
    tensor(6, low=1.0, high=2.0), value(0.1), value(3), {"type": "torch.dtype", "value": "torch.quint8"}
)


@pytest.mark.parametrize(
    ("api", "body"),
    [
        ("Torch.sparse_coo_tensor", SPARSE),
        ("Tensor.to_sparse", forward(tensor(4, 4))),
        ("Tensor.to_sparse_csr", forward(tensor(4, 4))),
    ],
)
def test_results_that_are_not_plain_are_judged(
    api: str, body: Any, recorder: Any, check: Any, device_that: Any
) -> None:
    call = recorder.keep(f"{api}.0", body)
    assert check(call).forward.outcome == "pass"
    assert check(call, device=device_that(plus_one)).forward.outcome == "fail"


def test_a_golden_result_that_needs_the_recorded_dtype_is_a_skip_that_says_so(recorder: Any, check: Any) -> None:
    result = check(recorder.keep("Torch.quantize_per_tensor.0", QUANTIZED)).forward
    assert result.outcome in ("pass", "skip")
    assert "Traceback" not in result.verdict.reason


@pytest.mark.parametrize("name", [name for name in dir(torch) if name.startswith("float8")])
def test_gradients_of_float8_are_judged(name: str, recorder: Any, check: Any) -> None:
    dtype = getattr(torch, name)
    arriving = {"input": [tensor(6, dtype=name)], "output": [tensor(6)]}
    cast = forward(tensor(6, requires_grad=True), {"type": "torch.dtype", "value": f"torch.{name}"})
    call = recorder.keep("Tensor.to.0", cast | {"output": [tensor(6, dtype=name)]}, arriving)
    result = check(call)
    assert (result.forward.outcome, result.backward.outcome) == ("pass", "pass"), dtype


def test_sparse_gradients_are_judged(recorder: Any, check: Any) -> None:
    weight = torch.randn(10, 3, requires_grad=True)
    call = recorder.Functional.embedding(torch.tensor([1, 2, 2]), weight, sparse=True)
    result = check(call).backward
    assert result.outcome == "pass"
    assert {output.path for output in result.outputs} >= {"grad.args.1.indices", "grad.args.1.values"}

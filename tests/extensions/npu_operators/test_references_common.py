"""Gradients of the operators that every large model calls, by hand and by autograd."""

from __future__ import annotations

import pytest
import torch

from tests.support.cann.examples import activation, common_layers
from tests.support.cann.operators import independent_definition

EXAMPLES = activation.EXAMPLES | common_layers.EXAMPLES


@pytest.mark.parametrize(
    ("forward", "backward", "example"),
    [
        ("npu_fast_gelu", "npu_fast_gelu_backward", "npu_fast_gelu-float32"),
        ("npu_swiglu", "npu_swiglu_backward", "npu_swiglu"),
        ("npu_rms_norm", "npu_rms_norm_backward", "npu_rms_norm"),
        ("npu_rotary_mul", "npu_rotary_mul_backward", "npu_rotary_mul"),
        ("npu_rotary_mul", "npu_rotary_mul_backward", "npu_rotary_mul-interleave"),
    ],
)
def test_an_independent_gradient_is_that_of_the_golden_definition(forward: str, backward: str, example: str) -> None:
    """The derivatives were worked out by hand; autograd goes through the golden definition."""
    from pytest_msprobe.engine.replay.references import ReferenceRegistry

    call = EXAMPLES[example](torch.Generator().manual_seed(0))
    leaves = [each.double().requires_grad_() for each in call.args if isinstance(each, torch.Tensor)]
    others = [each for each in call.args if not isinstance(each, torch.Tensor)]
    golden = ReferenceRegistry().get(f"NPU.{forward}")
    assert golden is not None
    results = golden(*leaves, *others, **call.kwargs)
    result, *saved = results if isinstance(results, tuple) else (results,)
    arriving = torch.randn(result.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    wanted = torch.autograd.grad(result, leaves, arriving)
    found = independent_definition(backward)(
        arriving, *(leaf.detach() for leaf in leaves), *saved, *others, **call.kwargs
    )
    for expected, actual in zip(wanted, found if isinstance(found, tuple) else (found,), strict=True):
        torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-5)

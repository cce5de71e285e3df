"""Golden definitions of the operators that every large model calls, against independent ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.support.cann.agreement import assert_agrees
from tests.support.cann.examples import activation, fusion_attention, layer
from tests.support.cann.operators import activation as activations
from tests.support.cann.operators import adam_steps
from tests.support.cann.operators import fusion_attention as attentions
from tests.support.cann.operators import layer as layers

EXAMPLES = activation.EXAMPLES | layer.EXAMPLES | fusion_attention.EXAMPLES


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_golden_definition_agrees_with_an_independent_one(name: str) -> None:
    call = EXAMPLES[name](torch.Generator().manual_seed(0))
    assert_agrees(independent(name.partition("-")[0]), call)


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
    from pytest_msprobe.engine.replay.references.registry import ReferenceRegistry

    call = EXAMPLES[example](torch.Generator().manual_seed(0))
    leaves = [each.double().requires_grad_() for each in call.args if isinstance(each, torch.Tensor)]
    others = [each for each in call.args if not isinstance(each, torch.Tensor)]
    golden = ReferenceRegistry().get(f"NPU.{forward}")
    assert golden is not None
    results = golden(*leaves, *others, **call.kwargs)
    result, *saved = results if isinstance(results, tuple) else (results,)
    arriving = torch.randn(result.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    wanted = torch.autograd.grad(result, leaves, arriving)
    found = independent(backward)(arriving, *(leaf.detach() for leaf in leaves), *saved, *others, **call.kwargs)
    for expected, actual in zip(wanted, found if isinstance(found, tuple) else (found,), strict=True):
        torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-5)


def independent(name: str) -> Callable[..., object]:
    """Return the independent definition of an operator."""
    modules = (activations, layers, adam_steps, attentions)
    found: Callable[..., object] = next(vars(module)[name] for module in modules if name in vars(module))
    return found

"""SDPA's fused kernel in place of npu_fusion_attention's formula: the CPU has a flash kernel too."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.extensions.npu_operators.attention.attention import npu_fusion_attention
from pytest_msprobe.extensions.npu_operators.attention.gpu_kernels import FusedAttention
from pytest_msprobe.results.result import LITTLE_JUDGED
from tests.support.dumps.recorder import Recorder
from tests.support.npu.attention_layouts import in_layout

_FLASH = "aten::_scaled_dot_product_flash_attention_for_cpu"
TRIANGLE = torch.ones(2048, 2048, dtype=torch.bool).triu(1)


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


class CalledBackends(TorchDispatchMode):
    """Notes which ATen operations ran."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.name())
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("layout", ["BSH", "SBH", "BSND", "BNSD"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"atten_mask": TRIANGLE, "sparse_mode": 2},
        {"atten_mask": TRIANGLE, "sparse_mode": 3},
        {"atten_mask": TRIANGLE, "sparse_mode": 4, "pre_tockens": 2, "next_tockens": 1},
        {"atten_mask": draw(2, 1, 5, 5, seed=5) > 0.5, "sparse_mode": 1},
    ],
)
def test_a_fused_kernel_computes_what_the_definition_says(layout: str, options: dict[str, Any]) -> None:
    tensors = [draw(2, 4, 5, 8), draw(2, 2, 5, 8, seed=1), draw(2, 2, 5, 8, seed=2)]
    q, k, v = (in_layout(x, layout).requires_grad_() for x in tensors)
    kernel = FusedAttention(npu_fusion_attention)
    with CalledBackends() as called:
        out, maximum, total, *_ = kernel(q, k, v, 4, layout, scale=0.3, **options)
    assert any("_scaled_dot_product_flash_attention" in name for name in called.names)
    expected = npu_fusion_attention(q, k, v, 4, layout, scale=0.3, **options)
    for got, want in zip((out, maximum, total), expected, strict=False):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    grad = draw(*out.shape, seed=7)
    for got, want in zip(
        torch.autograd.grad(out, (q, k, v), grad), torch.autograd.grad(expected[0], (q, k, v), grad), strict=True
    ):
        torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-11)
    assert kernel.stand_in == ""


def test_packed_sequences_go_through_the_kernel_one_by_one() -> None:
    q, k, v = draw(7, 2, 8), draw(9, 2, 8, seed=1), draw(9, 2, 8, seed=2)
    lengths = {"actual_seq_qlen": [3, 7], "actual_seq_kvlen": [4, 9]}
    kernel = FusedAttention(npu_fusion_attention)
    with CalledBackends() as called:
        out = kernel(q, k, v, 2, "TND", atten_mask=TRIANGLE, sparse_mode=3, **lengths)[0]
    assert any("_scaled_dot_product_flash_attention" in name for name in called.names)
    expected = npu_fusion_attention(q, k, v, 2, "TND", atten_mask=TRIANGLE, sparse_mode=3, **lengths)[0]
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)


def test_a_row_with_everything_hidden_is_zero_and_has_no_gradient() -> None:
    q, k, v = (draw(1, 2, 3, 8, seed=i).requires_grad_() for i in range(3))
    hidden = torch.zeros(3, 3, dtype=torch.bool)
    hidden[1] = True
    kernel = FusedAttention(npu_fusion_attention)
    out = kernel(q, k, v, 2, "BNSD", atten_mask=hidden, sparse_mode=1)[0]
    out.sum().backward()
    assert kernel.stand_in == ""
    assert not out[0, :, 1].any()
    assert q.grad is not None
    assert not q.grad[0, :, 1].any()
    assert q.grad[0, :, 0].any()
    assert not out.isnan().any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_inputs_keep_their_dtype_and_get_statistics_in_float32(dtype: torch.dtype) -> None:
    q, k, v = (draw(1, 2, 6, 8, seed=i, dtype=torch.float32).to(dtype) for i in range(3))
    out, maximum, total, *_ = FusedAttention(npu_fusion_attention)(q, k, v, 2, "BNSD", scale=0.35)
    assert (out.dtype, maximum.dtype, total.dtype) == (dtype, torch.float32, torch.float32)
    expected = npu_fusion_attention(q.double(), k.double(), v.double(), 2, "BNSD", scale=0.35)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(out.double(), expected[0], rtol=2 * eps, atol=2 * eps)
    torch.testing.assert_close(maximum.double(), expected[1], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(total.double(), expected[2], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"pse": draw(1, 2, 4, 4)}, "kernels take no pse"),
        ({"sink": draw(2)}, "kernels take no sink"),
        ({"keep_prob": 0.5}, r"float64, 8 dimensions .* dropout 0\.5"),
    ],
)
def test_what_no_kernel_takes_is_computed_by_definition_and_says_so(options: dict[str, Any], reason: str) -> None:
    q = draw(1, 2, 4, 8)
    kernel = FusedAttention(npu_fusion_attention)
    torch.manual_seed(3)
    out = kernel(q, q, q, 2, "BNSD", **options)[0]
    torch.manual_seed(3)
    assert out.equal(npu_fusion_attention(q, q, q, 2, "BNSD", **options)[0])
    assert re.search(reason, kernel.stand_in)
    kernel(q, q, q, 2, "BNSD")
    assert kernel.stand_in == ""


class Gpu(SimDevice):
    """A GPU by its name: the engine gives it a GPU's kernels, and the CPU computes."""

    name = "cuda"


def recorded(recorder: Recorder, **options: Any) -> Any:
    q, k, v = (draw(2, 4, 6, 8, seed=i, dtype=torch.float32).bfloat16().requires_grad_() for i in range(3))
    return recorder.NPU.npu_fusion_attention(q, k, v, 4, "BNSD", scale=0.35, **options)


def test_a_gpu_is_judged_by_its_kernel(recorder: Recorder, check: Any) -> None:
    with CalledBackends() as called:
        result = check(recorded(recorder, atten_mask=TRIANGLE, sparse_mode=2), device=Gpu())
    assert (result.forward.outcome, result.backward.outcome) == ("pass", "pass")
    assert {_FLASH, f"{_FLASH}_backward"} <= called.names
    assert LITTLE_JUDGED not in result.forward.extras | result.backward.extras


def test_another_device_runs_the_definition(recorder: Recorder, check: Any) -> None:
    with CalledBackends() as called:
        check(recorded(recorder), device=SimDevice())
    assert not any("_scaled_dot_product" in name for name in called.names)


def test_where_the_definition_stands_in_a_pass_says_how_little_it_says(recorder: Recorder, check: Any) -> None:
    result = check(recorded(recorder, pse=draw(1, 4, 6, 6, dtype=torch.float32).bfloat16()), device=Gpu())
    reason = "computed by its golden definition in place of a fused kernel: kernels take no pse"
    assert (result.forward.outcome, result.forward.extras[LITTLE_JUDGED]) == ("pass", reason)
    assert (result.backward.outcome, result.backward.extras[LITTLE_JUDGED]) == ("pass", reason)


def test_a_kernel_that_forgets_the_scale_is_found(recorder: Recorder, check: Any) -> None:
    class Unscaled(Gpu):
        def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
            return func(*args, **({**kwargs, "scale": 1.0} if "scale" in kwargs else kwargs))

    result = check(recorded(recorder), device=Unscaled())
    assert result.forward.outcome == "fail"
    assert result.forward.notes == ()


def test_where_the_definition_stands_in_a_failure_says_so(recorder: Recorder, check: Any) -> None:
    class Unscaled(Gpu):
        def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
            return func(*args, **({**kwargs, "scale": 1.0} if "scale" in kwargs else kwargs))

    result = check(recorded(recorder, pse=draw(1, 4, 6, 6, dtype=torch.float32).bfloat16()), device=Unscaled())
    assert result.forward.outcome == "fail"
    assert result.forward.notes == (
        "Computed by its golden definition in place of a fused kernel: kernels take no pse",
    )

"""Records of NPU operators find their golden definition, or the operator itself."""

from __future__ import annotations

from typing import Any

import torch

from msprobe_hooks.dump.names import parse_api_name
from pytest_msprobe.engine.replay.ops.lookup import resolve
from pytest_msprobe.engine.replay.references import ReferenceRegistry


def resolved(api: str, *, own: bool = False) -> Any:
    return resolve(parse_api_name(f"{api}.0.forward"), ReferenceRegistry(), own=own)


def test_an_npu_api_is_its_reference_on_the_cpu() -> None:
    x = torch.linspace(-3, 3, 7, dtype=torch.float64)
    torch.testing.assert_close(resolved("NPU.npu_fast_gelu")(x), x * torch.sigmoid(1.702 * x))


def test_an_operator_of_torch_npu_that_level_aten_recorded_is_run_by_the_device() -> None:
    with torch.library._scoped_library("npu", "FRAGMENT") as library:
        library.define("npu_swiglu_backward(Tensor grad, Tensor self, int dim=-1) -> Tensor")
        operator = torch.ops.npu.npu_swiglu_backward.default
        assert resolved("Aten.npu_swiglu_backward.default", own=True) is operator
    assert resolved("Aten.npu_swiglu_backward.default") is ReferenceRegistry().get("Aten.npu_swiglu_backward")

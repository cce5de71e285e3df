"""Records of quantizing operators, with inputs drawn from statistics, on devices that compute well and badly."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.values.pytree import map_tensors
from tests.support.cann.examples import (
    block_quantization,
    mx_quantization,
    quantized_activations,
    quantized_fusions,
    quantized_parameters,
)
from tests.support.dumps.recorder import Recorder

EXAMPLES = (
    mx_quantization.EXAMPLES
    | block_quantization.EXAMPLES
    | quantized_parameters.EXAMPLES
    | quantized_fusions.EXAMPLES
    | quantized_activations.EXAMPLES
)
# One of each way in which results are judged: by numbers of 4 and 8 bits, with exponents of rows, groups and tiles.
CHECKED = (
    "npu_dynamic_mx_quant-e1m2",
    "npu_grouped_dynamic_mx_quant",
    "npu_swiglu_mx_quant-groups",
    "npu_rms_norm_dynamic_mx_quant-e4m3",
    "npu_rotate_quant-int4",
    "npu_gelu_quant-hifloat8",
    "npu_dequant_swiglu_quant",
    "npu_quant_scatter_",
    "npu_moe_init_routing_quant",
)


def recorded(recorder: Recorder, example: str) -> Any:
    made = EXAMPLES[example](torch.Generator().manual_seed(0))
    return recorder.NPU[example.partition("-")[0]](*made.args, **made.kwargs)


@pytest.mark.parametrize("example", CHECKED)
def test_a_correct_device_passes(example: str, recorder: Recorder, check: Any) -> None:
    result = check(recorded(recorder, example), device=SimDevice())
    assert result.forward.outcome == "pass", result.forward.reason


@pytest.mark.parametrize("example", CHECKED)
def test_a_device_that_is_off_in_many_elements_is_found(
    example: str, recorder: Recorder, check: Any, device_that: Any
) -> None:
    def shifted(tensor: Tensor) -> Tensor:
        if tensor.dtype.itemsize == 4 and tensor.dtype.is_floating_point:
            return tensor
        bytes_ = tensor.view(torch.uint8)
        bytes_[..., ::2] += 1
        return tensor

    def alter(func: Any, args: Any, kwargs: Any) -> Any:
        return map_tensors(shifted, func(*args, **kwargs))

    assert check(recorded(recorder, example), device=device_that(alter)).forward.outcome == "fail"


@pytest.mark.parametrize(
    ("example", "options"),
    [
        ("npu_dynamic_mx_quant", {"round_mode": "floor"}),
        ("npu_dynamic_mx_quant", {"scale_alg": 2, "dst_type_max": 12.0}),
        ("npu_dynamic_mx_quant-e4m3", {"scale_alg": 1}),
        ("npu_rms_norm_dynamic_mx_quant", {"round_mode": "floor"}),
        ("npu_rms_norm_dynamic_mx_quant-e4m3", {"scale_alg": 0}),
        ("npu_rms_norm_dynamic_mx_quant-e4m3", {"epsilon": 0.1}),
    ],
)
def test_a_device_that_computes_something_else_is_found(
    example: str, options: dict[str, Any], recorder: Recorder, check: Any, device_that: Any
) -> None:
    def alter(func: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **(kwargs | options))

    assert check(recorded(recorder, example), device=device_that(alter)).forward.outcome == "fail"

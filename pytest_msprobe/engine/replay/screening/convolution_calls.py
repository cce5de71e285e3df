"""Which convolutions are screened."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from pytest_msprobe.engine.replay.arguments import Arguments
from pytest_msprobe.engine.replay.convolution_calls import PARAMETERS, convolution_call
from pytest_msprobe.engine.replay.screening.convolution import Convolution, Role
from pytest_msprobe.engine.replay.screening.structure import by_name, is_screenable_operand

# Below, a screen costs about what the exact check does: docs/performance.md, "Screened convolutions". Golden of 16 bits
# is float32, which is computed faster.
_LEAST_CHANNELS: Mapping[torch.dtype, int] = {torch.float32: 128, torch.float16: 256, torch.bfloat16: 256}
_LEAST_WINDOWS = 256


def convolution_of(operation: str, arguments: Arguments) -> Convolution | None:
    """Return what convolution a call is; None for any other, and for one that is left to the exact check.

    Its tensors are dense, without overlap, of one float dtype, and are large enough for a screen to be worth it.
    """
    call = convolution_call(operation, by_name(PARAMETERS.get(operation, ()), arguments) or {})
    if call is None:
        return None
    values, weight = call.values, call.weight
    tensors = [values[1], weight[1], *([] if call.bias is None else [call.bias[1]])]
    if not all(map(is_screenable_operand, tensors)) or len({tensor.dtype for tensor in tensors}) != 1:
        return None
    features, per_group = weight[1].shape[:2]
    windows = len(values[1]) * math.prod(axis.features for axis in call.axes)
    channels = min(features // call.groups, per_group)
    if channels < _LEAST_CHANNELS[values[1].dtype] or windows < _LEAST_WINDOWS:
        return None
    operands: dict[Role, tuple[str, torch.Tensor]]
    if call.is_transposed:
        operands = {"features": values, "weight": weight}
        return Convolution(operands, "image", call.shape, call.axes, call.groups, call.bias)
    operands = {"image": values, "weight": weight}
    return Convolution(operands, "features", call.shape, call.axes, call.groups, call.bias)

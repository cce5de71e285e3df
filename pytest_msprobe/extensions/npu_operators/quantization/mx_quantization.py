"""Quantization to floats of 4 and 8 bits whose blocks share an exponent, and back.

The operators of CANN's ops-nn for Ascend 950, by its documentation; exponents and their order as
:mod:`~pytest_msprobe.extensions.npu_operators.quantization.microscaling` says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from msprobe_hooks.dump.effects import GROUP_SIZES, Effects, ValidRows
from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators.arguments import at_least_float32, refuse
from pytest_msprobe.extensions.npu_operators.inputs import moe_routing as routing
from pytest_msprobe.extensions.npu_operators.layers.activation import npu_swiglu_backward
from pytest_msprobe.extensions.npu_operators.quantization import number_formats as formats
from pytest_msprobe.extensions.npu_operators.quantization.microscaling import (
    Scaling,
    mx_numbers,
    mx_quantized,
    mx_quantized_rows,
    mx_scaling,
    scaled,
    shared_exponents,
)
from pytest_msprobe.extensions.npu_operators.quantization.number_formats import (
    BLOCK,
    E2M1,
    FLOAT4S,
    float_dtype,
    format_among,
    numbers_in,
    store,
)
from pytest_msprobe.extensions.npu_operators.quantization.quantized_activations import swiglu_variant
from pytest_msprobe.extensions.npu_operators.quantization.quantized_results import QuantizedResults, SharedExponents

if TYPE_CHECKING:
    from torch import Tensor

_BLOCKS_ALONG_BOTH_AXES = OpInfo(
    quantized=QuantizedResults(
        default=formats.E4M3,
        algorithm=1,
        exponents=(SharedExponents(at=1), SharedExponents(at=3, of=2, axis=-2, groups="group_index")),
    ),
    constraint=routing.groups_of_rows("group_index"),
)

_LEVEL0_BLOCK = 512


@golden(
    "NPU.npu_dynamic_mx_quant",
    OpInfo(
        quantized=QuantizedResults(
            default=formats.E2M1, exact=True, exponents=(SharedExponents(at=1, axis="axis", block="block_size"),)
        )
    ),
)
def npu_dynamic_mx_quant(
    input: Tensor,
    *,
    axis: int = -1,
    round_mode: str = "rint",
    dst_type: object = 296,
    block_size: int = BLOCK,
    scale_alg: int | None = 0,
    dst_type_max: float = 0.0,
    max_low_bound: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Return (y, shared exponents in uint8) of blocks of ``block_size`` along ``axis``.

    ``dst_type`` is a float of 4 bits, two of which make an element of uint8, or of 8 bits. Raises NotImplementedError
    for another one.
    """
    how = mx_scaling(
        "npu_dynamic_mx_quant",
        dst_type,
        scale_alg=scale_alg,
        dst_type_max=dst_type_max,
        max_low_bound=max_low_bound,
        round_mode=round_mode,
        block=block_size,
    )
    return mx_quantized(input, axis, how)


@golden(
    "NPU.npu_dynamic_mx_quant_with_dual_axis",
    OpInfo(
        quantized=QuantizedResults(
            default=formats.E2M1, exact=True, exponents=(SharedExponents(at=1), SharedExponents(at=3, of=2, axis=-2))
        )
    ),
)
def npu_dynamic_mx_quant_with_dual_axis(
    input: Tensor,
    *,
    round_mode: str = "rint",
    dst_type: object = 296,
    scale_alg: int = 0,
    dst_type_max: float | None = 0.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (y, exponents) by blocks along the last dimension, and (y, exponents) by those along the one before it."""
    how = mx_scaling(
        "npu_dynamic_mx_quant_with_dual_axis",
        dst_type,
        scale_alg=scale_alg,
        dst_type_max=dst_type_max,
        round_mode=round_mode,
    )
    return *mx_quantized(input, -1, how), *mx_quantized(input, -2, how)


@golden("NPU.npu_anti_mx_quant")
def npu_anti_mx_quant(
    x: Tensor, mxscale: Tensor, *, axis: int | None = -1, dst_type: object = 15, src_type: object = 292
) -> Tensor:
    """Return the numbers of x times 2^(mxscale - 127), blocks of 32 along ``axis``: what was quantized, but rounded.

    x holds floats of 8 bits, or pairs of those of 4 bits that ``src_type`` names. ``dst_type`` is a float's dtype.
    Raises NotImplementedError for another ``src_type`` of pairs.
    """
    numbers = x
    if not x.is_floating_point():
        numbers = numbers_in(x, format_among("npu_anti_mx_quant", "src_type", src_type, (E2M1, *FLOAT4S)))
    wide = mx_numbers(numbers, mxscale, -1 if axis is None else axis)
    return wide.to(float_dtype(dst_type, torch.bfloat16))


@golden(
    "NPU.npu_dynamic_block_mx_quant",
    OpInfo(
        quantized=QuantizedResults(
            default=formats.E2M1, exact=True, exponents=(SharedExponents(at=2, axis=-2), SharedExponents(at=1))
        )
    ),
)
def npu_dynamic_block_mx_quant(
    input: Tensor,
    *,
    round_mode: str = "rint",
    dst_type: object = 296,
    scale_alg: int = 0,
    dst_type_max: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (y, exponents by row, exponents by column) of blocks of 32 x 32 in the last two dimensions.

    A block's exponent lies among those by row (..., m, ceil(n / 64), 2) for each of its rows, and among those by column
    (..., ceil(m / 64), n, 2) for each of its columns.
    """
    how = mx_scaling(
        "npu_dynamic_block_mx_quant",
        dst_type,
        scale_alg=scale_alg,
        dst_type_max=dst_type_max,
        round_mode=round_mode,
    )
    rows, columns = input.shape[-2:]
    wide = F.pad(input.detach().double(), (0, -columns % BLOCK, 0, -rows % BLOCK))
    tiles = torch.unflatten(torch.unflatten(wide, -1, (-1, BLOCK)), -3, (-1, BLOCK))
    exponents = shared_exponents(tiles.abs().amax((-3, -1)), how)
    element_exponents = exponents.repeat_interleave(BLOCK, -2).repeat_interleave(BLOCK, -1)
    values = scaled(wide, element_exponents)[..., :rows, :columns]
    by_row = _pairs((exponents + 127).to(torch.uint8)).repeat_interleave(BLOCK, -3)[..., :rows, :, :]
    by_column = _pairs((exponents.mT + 127).to(torch.uint8)).repeat_interleave(BLOCK, -3)[..., :columns, :, :]
    return store(values, how.to, how.round_mode), by_row, by_column.movedim(-3, -2)


def _pairs(exponents: Tensor) -> Tensor:
    return torch.unflatten(F.pad(exponents, (0, exponents.shape[-1] % 2)), -1, (-1, 2))


@golden(
    "NPU.npu_dynamic_dual_level_mx_quant",
    OpInfo(quantized=QuantizedResults(dtype="", default=formats.E2M1, exponents=(SharedExponents(at=2),))),
)
def npu_dynamic_dual_level_mx_quant(
    input: Tensor,
    *,
    smooth_scale: Tensor | None = None,
    round_mode: str = "rint",
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (y, scales, shared exponents) of input * ``smooth_scale``, floats of 4 bits in pairs (e2m1).

    Each 512 numbers of the last dimension have a scale in float32, max|x| / 6, and what they are divided by it is
    quantized in blocks of 32. It is rounded to the input's dtype in between, which is not done here.
    """
    x = at_least_float32(input.detach())
    x = x if smooth_scale is None else x * at_least_float32(smooth_scale)
    blocks = torch.unflatten(F.pad(x, (0, -x.shape[-1] % _LEVEL0_BLOCK)), -1, (-1, _LEVEL0_BLOCK))
    scales = blocks.abs().amax(-1) / E2M1.largest
    levelled = (blocks / scales.unsqueeze(-1)).masked_fill(scales.unsqueeze(-1) == 0, 0.0)
    levelled = levelled.flatten(-2)[..., : x.shape[-1]]
    y, exponents = mx_quantized(levelled, -1, Scaling(to=E2M1, round_mode=round_mode))
    return y, scales, exponents


@golden("NPU.npu_dual_level_quant_matmul")
def npu_dual_level_quant_matmul(
    x1: Tensor,
    x2: Tensor,
    x1_level0_scale: Tensor,
    x2_level0_scale: Tensor,
    x1_level1_scale: Tensor,
    x2_level1_scale: Tensor,
    *,
    bias: Tensor | None = None,
    output_dtype: object = 15,
) -> Tensor:
    """Return x1 @ x2^T + bias, (m, n), of floats of 4 bits in pairs (e2m1) with two levels of scales.

    x1 (m, k / 2) and x2 (n, k / 2) have shared exponents (..., ceil(k / 64), 2), and for each 512 of k a scale:
    ``x1_level0_scale`` (m, ceil(k / 512)) and ``x2_level0_scale`` (ceil(k / 512), n). ``output_dtype`` is float16 or
    bfloat16.
    """
    left = mx_numbers(numbers_in(x1, E2M1), x1_level1_scale, -1)
    right = mx_numbers(numbers_in(x2, E2M1), x2_level1_scale, -1)
    left = left * _for_each_512(x1_level0_scale, left.shape[-1])
    right = right * _for_each_512(x2_level0_scale.T, right.shape[-1])
    product = left @ right.T
    wide = product if bias is None else product + bias.double()
    return wide.to(float_dtype(output_dtype, torch.bfloat16))


def _for_each_512(scales: Tensor, count: int) -> Tensor:
    return scales.double().repeat_interleave(_LEVEL0_BLOCK, -1)[..., :count]


@golden(
    "NPU.npu_grouped_dynamic_mx_quant",
    OpInfo(
        quantized=QuantizedResults(
            default=formats.E5M2,
            exact=True,
            exponents=(SharedExponents(at=1, axis=-2, groups="group_index", groups_at=1),),
        ),
        constraint=routing.groups_of_rows("group_index", at=1),
    ),
)
def npu_grouped_dynamic_mx_quant(
    x: Tensor,
    group_index: Tensor,
    *,
    round_mode: str = "rint",
    dst_type: object = 23,
    blocksize: int = BLOCK,
    scale_alg: int | None = 0,
    dst_type_max: float | None = 0.0,
) -> tuple[Tensor, Tensor]:
    """Return (y, shared exponents (m // 64 + groups, n, 2)) of x (m, n) by blocks of 32 rows, anew in each group.

    ``group_index`` holds the ends of the groups, the last of which is m. What the exponents hold between groups is
    assumed to be 0, as in the documentation's example. Raises NotImplementedError for another ``blocksize``.
    """
    api = "npu_grouped_dynamic_mx_quant"
    refuse(api, blocksize=None if blocksize == BLOCK else blocksize)
    how = mx_scaling(
        api,
        dst_type,
        scale_alg=scale_alg,
        dst_type_max=dst_type_max,
        round_mode=round_mode,
    )
    return mx_quantized_rows(x, group_index.tolist(), how)


@golden(
    "NPU.npu_swiglu_mx_quant",
    OpInfo(
        quantized=QuantizedResults(
            default=formats.E2M1, exponents=(SharedExponents(at=1, axis="axis", groups="group_index", are_sizes=True),)
        ),
        constraint=routing.groups_of_rows("group_index", are_sizes=True),
    ),
    Effects(valid_rows=ValidRows("group_index", holds=GROUP_SIZES)),
)
def npu_swiglu_mx_quant(
    x: Tensor,
    *, group_index: Tensor | None = None, activate_dim: int = -1, activate_left: bool = False,
    swiglu_mode: int = 0, clamp_limit: float = 7.0, glu_alpha: float = 1.702, glu_bias: float = 1.0,
    group_mode: int = 0, axis: int = -1, dst_type: object = 296, round_mode: str = "rint", scale_alg: int = 0,
    max_dtype_value: float = 0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return (y, shared exponents) of a :func:`swiglu_variant` of x, in blocks of 32 along ``axis``.

    ``group_index`` holds how many rows each group has; behind the last nothing is promised. Blocks of rows begin anew
    in each group. ``max_dtype_value`` is reserved. Raises NotImplementedError for ``group_mode`` 1, which CANN does not
    have yet.
    """
    api = "npu_swiglu_mx_quant"
    refuse(api, group_mode=group_mode or None, max_dtype_value=max_dtype_value or None)
    how = mx_scaling(api, dst_type, scale_alg=scale_alg, round_mode=round_mode)
    y = swiglu_variant(
        at_least_float32(x),
        swiglu_mode=swiglu_mode,
        activate_left=activate_left,
        clamp_limit=clamp_limit,
        glu_alpha=glu_alpha,
        glu_bias=glu_bias,
        dim=activate_dim,
    )
    if group_index is not None and axis in (-2, x.dim() - 2):
        return mx_quantized_rows(y, group_index.cumsum(0).tolist(), how)
    return mx_quantized(y, axis, how)


@golden("NPU.npu_swiglu_mx_quant_with_dual_axis", _BLOCKS_ALONG_BOTH_AXES)
def npu_swiglu_mx_quant_with_dual_axis(
    x: Tensor,
    *,
    group_index: Tensor | None = None,
    activate_left: bool = True,
    round_mode: str = "rint",
    scale_alg: int = 1,
    dst_type: object = 24,
    dst_type_max: float = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (y, exponents) of silu(a) * b by blocks of 32 of each row, and (y, exponents) by those of each column.

    a and b are the halves of the last dimension, swapped where ``activate_left`` is false. Blocks of rows begin anew in
    each group of rows; ``group_index`` holds the groups' ends. Raises NotImplementedError for ``dst_type_max``, which
    is reserved.
    """
    api = "npu_swiglu_mx_quant_with_dual_axis"
    refuse(api, dst_type_max=dst_type_max or None)
    how = mx_scaling(api, dst_type, scale_alg=scale_alg, round_mode=round_mode)
    y = swiglu_variant(
        at_least_float32(x),
        swiglu_mode=0,
        activate_left=activate_left,
        clamp_limit=0.0,
        glu_alpha=1.0,
        glu_bias=0.0,
    )
    return _by_rows_and_columns(y, group_index, how)


def _by_rows_and_columns(y: Tensor, group_index: Tensor | None, how: Scaling) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    columns = mx_quantized(y, -2, how) if group_index is None else mx_quantized_rows(y, group_index.tolist(), how)
    return *mx_quantized(y, -1, how), *columns


@golden("NPU._npu_swiglu_backward_mx_quant_with_dual_axis", _BLOCKS_ALONG_BOTH_AXES, recorded=False)
def _npu_swiglu_backward_mx_quant_with_dual_axis(
    x: Tensor,
    y_grad: Tensor,
    *,
    group_index: Tensor | None = None,
    activate_left: bool = True,
    round_mode: str = "rint",
    scale_alg: int = 1,
    dst_type: object = 24,
    dst_type_max: float = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradient for x, quantized as :func:`npu_swiglu_mx_quant_with_dual_axis` quantizes.

    The gradients of a and b lie where these do in x.
    """
    api = "_npu_swiglu_backward_mx_quant_with_dual_axis"
    refuse(api, dst_type_max=dst_type_max or None)
    how = mx_scaling(api, dst_type, scale_alg=scale_alg, round_mode=round_mode)
    wide = at_least_float32(x)
    halves = wide if activate_left else torch.cat(wide.chunk(2, -1)[::-1], -1)
    grad = npu_swiglu_backward(at_least_float32(y_grad), halves)
    grad = grad if activate_left else torch.cat(grad.chunk(2, -1)[::-1], -1)
    return _by_rows_and_columns(grad, group_index, how)

"""Matrix products of int8, and of floats with a weight of int8."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_msprobe.engine.replay.references.quantization.quantization import rounded
from pytest_msprobe.engine.replay.references.reference_arguments import at_least_float32, refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def npu_quant_matmul(
    x1: Tensor,
    x2: Tensor,
    scale: Tensor,
    *,
    offset: Tensor | None = None,
    pertoken_scale: Tensor | None = None,
    bias: Tensor | None = None,
    output_dtype: torch.dtype | None = None,
    group_sizes: Sequence[int] | None = None,
) -> Tensor:
    """Return (x1 @ x2 + bias) * scale * pertoken_scale + offset for x1, x2 of int8; a float ``bias`` is added last.

    In ``output_dtype``, a float or int8, which is rounded and the default. Raises NotImplementedError for int32
    operands (eight numbers of 4 bits each), a packed (int64) or two-dimensional ``scale``, int32 results and
    ``group_sizes``.
    """
    refuse(
        "npu_quant_matmul",
        x1_of_int32=x1 if x1.dtype is torch.int32 else None,
        packed_scale=scale if scale.dtype is torch.int64 else None,
        scale_by_group=scale if scale.dim() > 1 else None,
        group_sizes=group_sizes or None,
        output_dtype_int32=output_dtype if output_dtype is torch.int32 else None,
    )
    # sums of products of int8 are exact in float64
    out = x1.double() @ x2.double()
    if bias is not None and not bias.is_floating_point():
        out = out + bias
    out = out * scale.double()
    if pertoken_scale is not None:
        out = out * pertoken_scale.double().unsqueeze(-1)
    for addend in (offset, bias if bias is not None and bias.is_floating_point() else None):
        out = out if addend is None else out + addend.double()
    return rounded(out) if output_dtype in (None, torch.int8) else out.to(output_dtype)


def npu_weight_quant_batchmatmul(
    x: Tensor,
    weight: Tensor,
    antiquant_scale: Tensor,
    antiquant_offset: Tensor | None = None,
    quant_scale: Tensor | None = None,
    quant_offset: Tensor | None = None,
    bias: Tensor | None = None,
    antiquant_group_size: int = 0,
    inner_precise: int = 0,
    weight_dtype: torch.dtype | None = None,
) -> Tensor:
    """Return x @ ((weight + antiquant_offset) * antiquant_scale) + bias, weight of int8 (k, n).

    Scale and offset are one number, one per column, or one per column and ``antiquant_group_size`` rows. With
    ``quant_scale`` the result y becomes round(y * quant_scale + quant_offset) in int8. Raises NotImplementedError for a
    weight of int32 (eight numbers of 4 bits each) and packed (int64) scales.
    """
    refuse(
        "npu_weight_quant_batchmatmul",
        weight_of_int32=weight if weight.dtype is torch.int32 else None,
        packed_antiquant_scale=antiquant_scale if antiquant_scale.dtype is torch.int64 else None,
        packed_quant_scale=None if quant_scale is None or quant_scale.is_floating_point() else quant_scale,
        weight_dtype=weight_dtype,
    )
    matrix = weight.to(antiquant_scale.dtype)
    if antiquant_offset is not None:
        matrix = matrix + _by_row(antiquant_offset, antiquant_group_size, len(weight))
    matrix = matrix * _by_row(antiquant_scale, antiquant_group_size, len(weight))
    y = x @ matrix.to(x.dtype)
    y = y if bias is None else y + bias.to(x.dtype)
    if quant_scale is None:
        return y
    shift = 0 if quant_offset is None else at_least_float32(quant_offset)
    return rounded(at_least_float32(y) * at_least_float32(quant_scale) + shift)


def _by_row(parameter: Tensor, group_size: int, rows: int) -> Tensor:
    """Repeat a parameter that groups of rows share; one that all rows share stays."""
    if not group_size or parameter.dim() < 2 or parameter.shape[0] == 1:
        return parameter
    return parameter.repeat_interleave(group_size, 0)[:rows]

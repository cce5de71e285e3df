"""SwiGLU, and its gradient, quantized in blocks that share an exponent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_msprobe.extensions.npu_operators.layers.activation import npu_swiglu_backward
from pytest_msprobe.extensions.npu_operators.quantization.microscaling import (
    Scaling,
    mx_quantized,
    mx_quantized_rows,
    mx_scaling,
)
from pytest_msprobe.extensions.npu_operators.quantization.quantized_activations import swiglu_variant
from pytest_msprobe.extensions.npu_operators.reference_arguments import at_least_float32, refuse

if TYPE_CHECKING:
    from torch import Tensor


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

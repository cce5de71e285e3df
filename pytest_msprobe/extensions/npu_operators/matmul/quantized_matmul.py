"""Products of quantized matrices, and the feed-forward layer made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators.arguments import at_least_float32, refuse
from pytest_msprobe.extensions.npu_operators.experts.moe import group_sizes
from pytest_msprobe.extensions.npu_operators.inputs import matmul_operands
from pytest_msprobe.extensions.npu_operators.layers.activation import npu_fast_gelu
from pytest_msprobe.extensions.npu_operators.matmul.operands import (
    as_packed,
    as_result,
    by_halves,
    exact_product,
    is_whole,
    numbers,
    scale_and_offset,
    scaled_product,
)
from pytest_msprobe.extensions.npu_operators.quantization.quantization import quantized_by_row, rounded
from pytest_msprobe.extensions.npu_operators.quantization.quantized_results import EIGHT_BITS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

# Results for which torch_npu packs a scale of float32.
_PACKED_FOR = (None, torch.int8, torch.float16, 1, 5)


@golden("NPU.npu_quant_matmul", OpInfo(constraint=matmul_operands.packed_scales, quantizes=EIGHT_BITS))
def npu_quant_matmul(
    x1: Tensor, x2: Tensor, scale: Tensor,
    *, offset: Tensor | None = None, pertoken_scale: Tensor | None = None, bias: Tensor | None = None,
    output_dtype: torch.dtype | int | None = None, x1_dtype: int | None = None, x2_dtype: int | None = None,
    pertoken_scale_dtype: int | None = None, scale_dtype: int | None = None,
    group_sizes: Sequence[int] | None = None, y_scale: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return (x1 @ x2 + bias) * scale * pertoken_scale + offset, in ``output_dtype``, int8 by default.

    Operands are int8, floats of 8 bits, or numbers of 4 bits as :func:`numbers` reads them; scales are by number, row
    and column or block as in :func:`scaled_product`, or packed with an offset, which a result of int8 takes. A scale
    of float32 without ``pertoken_scale`` loses its lowest 13 bits where the result is int8 or float16, as torch_npu
    packs it. int32 is the product with its bias before any scale.

    An offset by block is subtracted from the weight. That of x1 of int8 with a weight of 4 bits is, as the device
    multiplies by halves of 4 bits, 8 times the sum of the scaled weight's columns plus what is to be added before
    ``pertoken_scale``. ``y_scale`` multiplies the result of a weight that is scaled by block.
    """
    api = "npu_quant_matmul"
    left = numbers(api, x1, x1_dtype)
    right = numbers(api, x2, x2_dtype, left.shape[-1])
    if output_dtype in (torch.int32, 3):
        product = exact_product(left, right)
        return as_result(product if bias is None else product + bias.double(), output_dtype)
    factor, shift = scale_and_offset(numbers(api, scale, scale_dtype) if scale_dtype is not None else scale)
    token_scale = None if pertoken_scale is None else numbers(api, pertoken_scale, pertoken_scale_dtype)
    if offset is not None and x1.dtype is torch.int8 and right is not x2:
        return as_result(by_halves(left, right, factor, token_scale, offset), output_dtype)
    if offset is not None and offset.dim() > 1 and offset.shape[-2] > 1:
        right, offset = (
            right.double() - offset.double().repeat_interleave(right.shape[-2] // offset.shape[-2], -2),
            None,
        )
    is_packed = token_scale is None and not left.is_floating_point() and output_dtype in _PACKED_FOR
    if is_packed and scale.is_floating_point():
        factor = as_packed(factor)
        offset = None if offset is None else offset.double().round().clamp(-256, 255)
    out = scaled_product(left, right, factor, token_scale, bias=bias, group_sizes=group_sizes)
    if y_scale is not None:
        out = out * scale_and_offset(y_scale)[0]
    if offset is None and shift is not None and is_whole(output_dtype):
        offset = shift
    return as_result(out if offset is None else out + offset.double(), output_dtype)


@golden("NPU.npu_weight_quant_batchmatmul", OpInfo(constraint=matmul_operands.packed_scales, quantizes=EIGHT_BITS))
def npu_weight_quant_batchmatmul(
    x: Tensor, weight: Tensor, antiquant_scale: Tensor, antiquant_offset: Tensor | None = None,
    quant_scale: Tensor | None = None, quant_offset: Tensor | None = None, bias: Tensor | None = None,
    antiquant_group_size: int = 0, inner_precise: int = 0, weight_dtype: int | None = None,
) -> Tensor:  # fmt: skip
    """Return x @ ((weight + antiquant_offset) * antiquant_scale) + bias, weight (k, n) of 8 or 4 bits.

    Scale and offset are one number, one per column, or one per column and ``antiquant_group_size`` rows; scales may be
    packed. With ``quant_scale`` the result y becomes round(y * quant_scale + quant_offset) in int8.
    ``inner_precise`` chooses between ways to the same numbers.
    """
    api = "npu_weight_quant_batchmatmul"
    matrix = numbers(api, weight, weight_dtype, x.shape[-1])
    scale, _ = scale_and_offset(antiquant_scale)
    y = x @ dequantized(matrix, scale.to(x.dtype), antiquant_offset, antiquant_group_size)
    y = y if bias is None else y + bias.to(x.dtype)
    if quant_scale is None:
        return y
    factor, shift = scale_and_offset(quant_scale)
    shift = shift if quant_offset is None else at_least_float32(quant_offset)
    quantized = at_least_float32(y) * at_least_float32(factor)
    return rounded(quantized if shift is None else quantized + shift)


def dequantized(weight: Tensor, scale: Tensor, offset: Tensor | None = None, group_size: int = 0) -> Tensor:
    """Return (weight + offset) * scale in the dtype of ``scale``, both by number, column, or column and rows' group."""
    rows = weight.shape[-2]
    matrix = weight.to(scale.dtype)
    if offset is not None:
        matrix = matrix + _by_row(offset.to(scale.dtype), group_size, rows)
    return matrix * _by_row(scale, group_size, rows)


def _by_row(parameter: Tensor, group_size: int, rows: int) -> Tensor:
    """Repeat a parameter that groups of rows share; one that all rows share stays."""
    if parameter.dim() < 2 or parameter.shape[-2] in (1, rows):
        return parameter
    return parameter.repeat_interleave(group_size or rows // parameter.shape[-2], -2)[..., :rows, :]


@golden("NPU.npu_quant_matmul_gelu")
def npu_quant_matmul_gelu(
    x1: Tensor,
    x2: Tensor,
    x1_scale: Tensor,
    x2_scale: Tensor,
    *,
    bias: Tensor | None = None,
    approximate: str | None = "gelu_erf",
) -> Tensor:
    """Return gelu((x1 @ x2 + bias) * x2_scale * x1_scale), a float bias added last; operands of 8 or 4 bits.

    The result is float16 for a ``x2_scale`` of float32, and of its dtype otherwise.
    Raises NotImplementedError for an ``approximate`` other than gelu_erf and gelu_tanh.
    """
    api = "npu_quant_matmul_gelu"
    refuse(api, **{f"approximate {approximate}": None if approximate in _GELU_KINDS else approximate})
    left = numbers(api, x1)
    out = scaled_product(left, numbers(api, x2, None, left.shape[-1]), x2_scale, x1_scale, bias=bias)
    activated = F.gelu(out, approximate=_GELU_KINDS[approximate])
    return activated.to(torch.float16 if x2_scale.dtype is torch.float32 else x2_scale.dtype)


_GELU_KINDS: dict[str | None, str] = {"gelu_erf": "none", None: "none", "gelu_tanh": "tanh"}


@golden("NPU.npu_quant_matmul_reduce_sum")
def npu_quant_matmul_reduce_sum(
    x1: Tensor, x2: Tensor, *, x1_scale: Tensor | None = None, x2_scale: Tensor | None = None
) -> Tensor:
    """Return the sum over the batch of (x1_i @ x2_i) * x1_scale_i * x2_scale for x1, x2 of int8.

    ``x1_scale`` is (batch, m), ``x2_scale`` (n,).
    """
    out = exact_product(x1, x2)
    if x1_scale is not None:
        out = out * x1_scale.double().unsqueeze(-1)
    total = out.sum(0)
    return total if x2_scale is None else (total * x2_scale.double()).to(x2_scale.dtype)


@golden("NPU.npu_quant_matmul_dequant", OpInfo(constraint=matmul_operands.packed_scales))
def npu_quant_matmul_dequant(
    x: Tensor,
    quantized_weight: Tensor,
    weight_scale: Tensor,
    *,
    bias: Tensor | None = None,
    x_scale: Tensor | None = None,
    x_offset: Tensor | None = None,
    smooth_scale: Tensor | None = None,
    quant_mode: str | None = "pertoken",
) -> Tensor:
    """Return (q @ quantized_weight^T + bias) * weight_scale * s, q = round(x * smooth_scale / s) in int8.

    s is ``x_scale``, of each row or of all, by default max|x * smooth_scale| / 127 of each row. A packed
    ``weight_scale`` holds s already. Raises NotImplementedError for ``x_offset``.
    Source: aclnnQuantMatmulDequant's documentation.
    """
    refuse("npu_quant_matmul_dequant", x_offset=x_offset)
    rows, scale = quantized_rows(x, smooth_scale, x_scale)
    packed, _ = scale_and_offset(weight_scale)
    token_scale = scale if weight_scale.is_floating_point() else None
    out = scaled_product(rows, quantized_weight.mT, packed, token_scale, bias=bias)
    return out.to(x.dtype)


def quantized_rows(x: Tensor, smooth_scale: Tensor | None, x_scale: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return (int8, scale) of x * smooth_scale, by ``x_scale`` or by the largest number of each row."""
    values = at_least_float32(x)
    values = values if smooth_scale is None else values * at_least_float32(smooth_scale)
    if x_scale is None:
        return quantized_by_row(values)
    scale = at_least_float32(x_scale)
    return rounded(values / (scale.unsqueeze(-1) if scale.numel() > 1 else scale)), scale


_Layer = list["Tensor | None"]


_BY_NAME: dict[str, Callable[[Tensor], Tensor]] = {"fastgelu": npu_fast_gelu, "relu": F.relu, "silu": F.silu}


@golden("NPU.npu_ffn", OpInfo(constraint=matmul_operands.packed_scales))
def npu_ffn(
    x: Tensor, weight1: Tensor, weight2: Tensor, activation: str,
    *, expert_tokens: Sequence[int] | None = None, expert_tokens_index: Sequence[int] | None = None,
    bias1: Tensor | None = None, bias2: Tensor | None = None, scale: Tensor | None = None,
    offset: Tensor | None = None, deq_scale1: Tensor | None = None, deq_scale2: Tensor | None = None,
    antiquant_scale1: Tensor | None = None, antiquant_scale2: Tensor | None = None,
    antiquant_offset1: Tensor | None = None, antiquant_offset2: Tensor | None = None,
    inner_precise: int | None = None, output_dtype: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    """Return activation(x @ weight1 + bias1) @ weight2 + bias2, for groups of rows where the parameters are per expert.

    ``expert_tokens`` are the groups' sizes, ``expert_tokens_index`` their ends. Weights of int8 count as
    (weight + antiquant_offset) * antiquant_scale. ``activation`` is fastgelu, relu or silu. Products of int8 are
    multiplied by ``deq_scale1``, activated, rounded to int8 as y * scale + offset, and multiplied by ``deq_scale2``;
    they are float16 where no ``output_dtype`` says otherwise, here in the precision in which they are computed.
    ``inner_precise`` chooses between ways to the same numbers.

    Raises NotImplementedError for another activation, whose formula the documentation leaves open.
    """
    refuse("npu_ffn", **{f"activation {activation}": None if activation in _BY_NAME else activation})
    between = (scale, offset)
    first: _Layer = [weight1, bias1, antiquant_scale1, antiquant_offset1, deq_scale1]
    second: _Layer = [weight2, bias2, antiquant_scale2, antiquant_offset2, deq_scale2]
    groups = expert_tokens if expert_tokens is not None else expert_tokens_index
    if groups is None:
        out = _layers(x, _BY_NAME[activation], first, second, *between)
    else:
        sizes = group_sizes("npu_ffn", groups, len(x), cumulative=expert_tokens is None)
        outs = []
        for expert, part in enumerate(torch.split(x, sizes)):
            one, two, (factor, shift) = (
                [None if operand is None else operand[expert] for operand in layer]
                for layer in (first, second, between)
            )
            outs.append(_layers(part, _BY_NAME[activation], one, two, factor, shift))
        out = torch.cat(outs)
    return out if x.is_floating_point() or output_dtype is None else out.to(output_dtype)


def _layers(
    x: Tensor,
    activate: Callable[[Tensor], Tensor],
    first: _Layer,
    second: _Layer,
    scale: Tensor | None,
    offset: Tensor | None,
) -> Tensor:
    hidden = activate(_layer(x, *first))
    if scale is not None:
        scaled = hidden * scale.double()
        hidden = rounded(scaled if offset is None else scaled + offset.double())
    return _layer(hidden, *second)


def _layer(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    factor: Tensor | None,
    shift: Tensor | None,
    scale: Tensor | None,
) -> Tensor:
    """Return x @ weight + bias, with a quantized weight, or with both operands quantized and a scale behind."""
    matrix = torch.empty(0) if weight is None else weight
    if scale is not None:
        return scaled_product(x, matrix, scale_and_offset(scale)[0], bias=bias)
    product = x @ (matrix if factor is None else dequantized(matrix, factor, shift)).to(x.dtype)
    return product if bias is None else product + bias.to(x.dtype)

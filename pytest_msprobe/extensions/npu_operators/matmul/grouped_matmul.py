"""Products of groups of rows, and products that are added to what is there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from msprobe_hooks.dump.effects import Effects, ValidRows
from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators.arguments import in_place, refuse
from pytest_msprobe.extensions.npu_operators.experts.moe import group_sizes
from pytest_msprobe.extensions.npu_operators.experts.moe import group_sizes as sizes_of_groups
from pytest_msprobe.extensions.npu_operators.inputs import matmul_operands
from pytest_msprobe.extensions.npu_operators.layers.activation import npu_fast_gelu
from pytest_msprobe.extensions.npu_operators.matmul.operands import (
    as_result,
    by_halves,
    exact_product,
    is_whole,
    numbers,
    scale_and_offset,
    scaled_product,
)
from pytest_msprobe.extensions.npu_operators.matmul.quantized_matmul import dequantized
from pytest_msprobe.extensions.npu_operators.quantization.quantized_results import EIGHT_BITS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def _nothing(x: Tensor) -> Tensor:
    return x


_BY_ACT_TYPE: dict[int, Callable[[Tensor], Tensor]] = {
    0: _nothing, 1: F.relu, 2: _gelu_tanh, 4: npu_fast_gelu, 5: F.silu,
}  # fmt: skip
_ROWS, _INNER = 0, 2


@dataclass(frozen=True)
class Factors:
    """Operands of each group of a product besides its two, None where it has not: one entry per group."""

    bias: Sequence[Tensor | None]
    scale: Sequence[Tensor | None]
    offset: Sequence[Tensor | None]
    weight_scale: Sequence[Tensor | None]
    weight_offset: Sequence[Tensor | None]


@golden(
    "NPU.npu_grouped_matmul",
    OpInfo(constraint=matmul_operands.grouped_matmul, quantizes=EIGHT_BITS),
    Effects(valid_rows=ValidRows("group_list", kind="group_list_type")),
)
def npu_grouped_matmul(
    x: Sequence[Tensor], weight: Sequence[Tensor],
    *, bias: Sequence[Tensor] | None = None, scale: Sequence[Tensor] | None = None,
    offset: Sequence[Tensor] | None = None, antiquant_scale: Sequence[Tensor] | None = None,
    antiquant_offset: Sequence[Tensor] | None = None, per_token_scale: Sequence[Tensor] | None = None,
    group_list: Tensor | Sequence[int] | None = None, activation_input: Sequence[Tensor] | None = None,
    activation_quant_scale: Sequence[Tensor] | None = None,
    activation_quant_offset: Sequence[Tensor] | None = None, split_item: int | None = 0,
    group_type: int | None = None, group_list_type: int | None = 0, act_type: int | None = 0,
    tuning_config: Sequence[int] | None = None, output_dtype: torch.dtype | int | None = None,
    x_dtype: int | None = None, weight_dtype: int | None = None, scale_dtype: int | None = None,
    per_token_scale_dtype: int | None = None,
) -> list[Tensor]:  # fmt: skip
    """Return [act(x_i @ weight_i + bias_i)], joined to one tensor where ``split_item`` is 2 or 3.

    ``weight`` is one tensor per group, or one (groups, k, n). So is ``x``, or one (rows, k) whose groups of rows
    ``group_list`` says, by their ends, with ``group_list_type`` 1 by their sizes, with 2 by pairs of a weight's number
    and a size. With ``group_type`` 2 the groups share out k of one x (m, k) and one weight (k, n), and the result is
    (groups, m, n) or as many of (m, n). ``act_type`` is 0 none, 1 ReLU, 2 GELU (tanh), 4 fast GELU, 5 SiLU.

    A weight with an ``antiquant_scale`` counts as (weight + antiquant_offset) * antiquant_scale, by column or by
    column and group of rows. With ``scale`` the product is (x_i @ weight_i + bias_i) * scale_i * per_token_scale +
    offset_i, a float bias added at the end, in ``output_dtype``, by default int8 for x of int8. Operands and scales
    are those of ``npu_quant_matmul``. x of int8 with a weight of 4 bits and a float bias (what is to be added for the
    lower halves of x) is multiplied by halves, as there. ``tuning_config`` is about speed.

    Raises NotImplementedError for ``activation_*``, groups of columns (``group_type`` 1), scales in blocks of groups
    of k and ``act_type`` 3, and ValueError where the groups have more than the rows. Rows behind the last group are
    zero here and not defined on the device.
    """
    api = "npu_grouped_matmul"
    refuse(
        api,
        activation_input=activation_input or None,
        activation_quant_scale=activation_quant_scale or None,
        activation_quant_offset=activation_quant_offset or None,
        group_type=None if group_type in (None, -1, _ROWS, _INNER) else group_type,
        group_list_type=None if group_list_type in (None, 0, 1, 2) else group_list_type,
        act_type=None if (act_type or 0) in _BY_ACT_TYPE else act_type,
    )
    rows = [numbers(api, operand, x_dtype) for operand in x]
    weights = [numbers(api, operand, weight_dtype, rows[0].shape[-1]) for operand in weight]
    tokens = (
        None if not per_token_scale else [numbers(api, operand, per_token_scale_dtype) for operand in per_token_scale]
    )
    groups, sizes = _groups(api, group_list, group_list_type, rows[0].shape[1 if group_type == _INNER else 0])
    if group_type == _INNER:
        refuse(api, scale_in_blocks=tokens if tokens and tokens[0].dim() > 2 else None)
        lefts, rights = rows[0][:, : sum(sizes)], weights[0][: sum(sizes)]
        parts = list(zip(torch.split(lefts, sizes, 1), torch.split(rights, sizes), strict=True))
    else:
        parts = _parts(api, rows, _of_each_group(weights, 3), groups, sizes)
    parameters = (bias, scale, offset, antiquant_scale, antiquant_offset)
    factors = Factors(*(_each_or_none(operand, len(parts), groups, weights) for operand in parameters))
    shares = _shares(tokens, [left for left, _ in parts], by_group=group_type == _INNER)
    weight_form = (weights[0] is not weight[0], scale_dtype)
    outs = [_product(i, part, factors, shares[i], output_dtype, *weight_form) for i, part in enumerate(parts)]
    outs = [_BY_ACT_TYPE[act_type or 0](out) for out in outs]
    if split_item in (2, 3):
        outs = [torch.stack(outs) if group_type == _INNER else _joined(outs, sum(map(len, rows)))]
    if scale or not rows[0].is_floating_point():
        return [as_result(out, output_dtype) for out in outs]
    return [out.to(output_dtype) if isinstance(output_dtype, torch.dtype) else out for out in outs]


def _groups(
    api: str, group_list: Tensor | Sequence[int] | None, kind: int | None, total: int
) -> tuple[list[int] | None, list[int]]:
    """Return the weight of each group, None for all in their order, and its size."""
    if group_list is None:
        return None, []
    if kind == 2:
        pairs = [(int(number), int(size)) for number, size in group_list]  # type: ignore[misc, arg-type, unused-ignore]
        groups, counts = [number for number, _ in pairs], [size for _, size in pairs]
        return groups, group_sizes(api, counts, total, cumulative=False)
    return None, group_sizes(api, group_list, total, cumulative=kind != 1)


def _parts(
    api: str, rows: list[Tensor], weights: list[Tensor], groups: list[int] | None, sizes: list[int]
) -> list[tuple[Tensor, Tensor]]:
    """Return the operands of each group."""
    if groups is not None:
        weights = [weights[number] for number in groups]
    if len(rows) == 1 and len(weights) > 1:
        if not sizes:
            raise ValueError(f"{api} needs group_list for one x and {len(weights)} weights")
        rows = list(torch.split(rows[0][: sum(sizes)], sizes))
    elif len(rows) == 1 and sizes:
        rows = [rows[0][: sum(sizes)]]
    return list(zip(rows, weights, strict=True))


def _shares(tokens: list[Tensor] | None, rows: list[Tensor], *, by_group: bool) -> list[Tensor | None]:
    """Return the scales of the rows of each group."""
    if tokens is None:
        return [None] * len(rows)
    joined = torch.cat(tokens)
    if by_group:
        return list(joined)
    sizes = [len(part) for part in rows]
    return list(torch.split(joined[: sum(sizes)], sizes))


def _product(
    group: int,
    operands: tuple[Tensor, Tensor],
    factors: Factors,
    token_scale: Tensor | None,
    dtype: torch.dtype | int | None,
    is_unpacked: bool,
    scale_dtype: int | None,
) -> Tensor:
    """Return the product of one group, before its activation and in a wide dtype."""
    x, weight = operands
    bias, scale, offset = factors.bias[group], factors.scale[group], factors.offset[group]
    weight_scale = factors.weight_scale[group]
    if weight_scale is not None:
        weight = dequantized(weight, weight_scale.to(x.dtype), factors.weight_offset[group])
    if scale is None and x.is_floating_point():
        product = x @ weight.to(x.dtype)
        return product if bias is None else product + bias.to(x.dtype)
    if scale is None or dtype in (torch.int32, 3):
        product = exact_product(x, weight)
        return product if bias is None else product + bias.double()
    factor, shift = scale_and_offset(numbers("npu_grouped_matmul", scale, scale_dtype) if scale_dtype else scale)
    if is_unpacked and x.dtype is torch.int8 and bias is not None and bias.is_floating_point():
        return by_halves(x, weight, factor, token_scale, bias)
    out = scaled_product(x, weight, factor, token_scale, bias=bias)
    shift = shift if offset is None and is_whole(dtype) else offset
    return out if shift is None else out + shift.double()


def _joined(outs: list[Tensor], rows: int) -> Tensor:
    behind = rows - sum(map(len, outs))
    return torch.cat([*outs, outs[0].new_zeros(behind, outs[0].shape[-1])] if behind else outs)


def _each_or_none(
    tensors: Sequence[Tensor] | None, groups: int, selected: list[int] | None, weights: Sequence[Tensor]
) -> Sequence[Tensor | None]:
    """Return what each group has of a parameter, which one tensor may hold for all of them."""
    if not tensors:
        return [None] * groups
    is_one_of_all = len(tensors) == 1 and (weights[0].dim() == 3 or groups > 1)
    entries = list(tensors[0]) if is_one_of_all else list(tensors)
    return entries if selected is None else [entries[number] for number in selected]


def _of_each_group(tensors: Sequence[Tensor], dims: int) -> list[Tensor]:
    """Return what each group has, of one tensor that has ``dims`` dimensions where it holds that of all."""
    return list(tensors[0]) if len(tensors) == 1 and tensors[0].dim() == dims else list(tensors)


@golden("NPU.npu_grouped_matmul_add", OpInfo(constraint=matmul_operands.accumulated_groups(3)))
def npu_grouped_matmul_add(
    self: Tensor,
    x: Tensor,
    weight: Tensor,
    group_list: Tensor,
    *,
    transpose_x: bool = True,
    transpose_weight: bool = False,
    group_type: int = 2,
    group_list_type: int | None = 0,
) -> Tensor:
    """Return ``self`` (groups, m, n) + x_i^T @ weight_i for groups of rows of x (k, m) and of weight (k, n).

    ``group_list`` holds the groups' ends, with ``group_list_type`` 1 their sizes; rows behind them are left out.
    Raises NotImplementedError for other ways to lay out the operands, which the device does not take either.
    """
    api = "npu_grouped_matmul_add"
    refuse(
        api,
        transpose_x_false=None if transpose_x else transpose_x,
        transpose_weight=transpose_weight or None,
        group_type=None if group_type == 2 else group_type,
    )
    sizes = sizes_of_groups(api, group_list, len(x), cumulative=group_list_type != 1, may_leave_rows=True)
    parts = zip(*(torch.split(operand[: sum(sizes)].to(self.dtype), sizes) for operand in (x, weight)), strict=True)
    return self + torch.stack([left.mT @ right for left, right in parts]).reshape(self.shape)


npu_grouped_matmul_add_ = golden(
    "NPU.npu_grouped_matmul_add_", OpInfo(constraint=matmul_operands.accumulated_groups(3))
)(in_place(npu_grouped_matmul_add))


@golden("NPU.npu_add_quant_matmul")
def npu_add_quant_matmul(
    self: Tensor, x1: Tensor, x2: Tensor, x2_scale: Tensor,
    *, x1_scale: Tensor | None = None, group_sizes: Sequence[int] | None = None, x1_dtype: int | None = None,
    x2_dtype: int | None = None, x1_scale_dtype: int | None = None, x2_scale_dtype: int | None = None,
) -> Tensor:  # fmt: skip
    """Return self + (x1 @ x2) * x2_scale * x1_scale for floats of 8 bits, x1 (m, k) or, stored so, (k, m).

    Scales are one number each, or pairs of blocks of 32: ``x1_scale`` (m, k / 64, 2) or (k / 64, m, 2), as x1 is,
    ``x2_scale`` (k / 64, n, 2). Source: op-plugin's documentation.
    """
    api = "npu_add_quant_matmul"
    left, right = numbers(api, x1, x1_dtype), numbers(api, x2, x2_dtype)
    scale = None if x1_scale is None else numbers(api, x1_scale, x1_scale_dtype)
    if left.shape[-1] != right.shape[-2]:
        left = left.mT
        scale = scale.transpose(0, 1) if scale is not None and scale.dim() == 3 else scale
    added = scaled_product(left, right, numbers(api, x2_scale, x2_scale_dtype), scale, group_sizes=group_sizes)
    return self + added.to(self.dtype)


npu_add_quant_matmul_ = golden("NPU.npu_add_quant_matmul_")(in_place(npu_add_quant_matmul))


@golden("NPU.npu_add_quant_gmm", OpInfo(constraint=matmul_operands.accumulated_groups(4)))
def npu_add_quant_gmm(
    self: Tensor, x1: Tensor, x2: Tensor, x2_scale: Tensor, group_list: Tensor,
    *, x1_scale: Tensor | None = None, group_list_type: int | None = 0,
    group_sizes: Sequence[int] | None = None, x1_dtype: int | None = None, x2_dtype: int | None = None,
    x1_scale_dtype: int | None = None, x2_scale_dtype: int | None = None,
) -> Tensor:  # fmt: skip
    """Return ``self`` (groups, m, n), to which (x1_i @ x2_i) * x2_scale_i * x1_scale_i is added, by groups of k.

    x1 is (m, k) or, stored so, (k, m), x2 (k, n). ``x1_scale`` is one number per group, ``x2_scale`` one per group or
    per group and column; or both have pairs of blocks of 32 in their dimension of k, those of group i from
    start_i / 64 + i on (assumed, from the documented k / 64 + groups). Raises NotImplementedError for ``group_sizes``.
    """
    api = "npu_add_quant_gmm"
    refuse(api, group_sizes=group_sizes or None)
    left, right = numbers(api, x1, x1_dtype), numbers(api, x2, x2_dtype)
    factors = numbers(api, x2_scale, x2_scale_dtype)
    tokens = None if x1_scale is None else numbers(api, x1_scale, x1_scale_dtype)
    is_stored_by_rows = left.shape[-1] == right.shape[0]
    if tokens is not None and tokens.dim() == 3:
        tokens = tokens.transpose(0, 1) if is_stored_by_rows else tokens
    left = left.mT if is_stored_by_rows else left
    sizes = sizes_of_groups(api, group_list, len(right), cumulative=group_list_type != 1, may_leave_rows=True)
    added, start = [], 0
    for group, size in enumerate(sizes):
        rows = slice(start, start + size)
        scales = (_of_group(scale, group, start, size) for scale in (factors, tokens))
        factor, token = scales
        token = token.transpose(0, 1) if token is not None and token.dim() == 3 else token
        added.append(scaled_product(left[rows].mT, right[rows], factor, token))
        start += size
    return self + torch.stack(added).to(self.dtype).reshape(self.shape)


npu_add_quant_gmm_ = golden("NPU.npu_add_quant_gmm_", OpInfo(constraint=matmul_operands.accumulated_groups(4)))(
    in_place(npu_add_quant_gmm)
)


def _of_group(scale: Tensor | None, group: int, start: int, size: int) -> Tensor | None:
    if scale is None or scale.dim() < 3:
        return None if scale is None else scale[group]
    first = start // 64 + group
    return scale[first : first + -(-size // 64)]

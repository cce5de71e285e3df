"""Matrix products with what comes before and behind them, computed independently of the golden definitions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tests.support.cann.operators.grouped_products import owners
from tests.support.cann.packed import Array, activated, floats, in_dtype, read_scale, to_int8


def npu_transpose_batchmatmul(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    *,
    bias: Tensor | None = None,
    scale: Tensor | None = None,
    perm_x1: Sequence[int] | None = None,
    perm_x2: Sequence[int] | None = None,
    perm_y: Sequence[int] | None = None,
    batch_split_factor: int | None = 1,
) -> Tensor:
    """Return one product for each batch, of permuted operands."""
    x, w = floats(input).transpose(perm_x1 or (0, 1, 2)), floats(weight).transpose(perm_x2 or (0, 1, 2))
    y = np.stack([x[b] @ w[b] for b in range(len(x))]).transpose(perm_y or (1, 0, 2))
    if scale is not None:
        factor, offset = read_scale(scale)
        return to_int8(y.reshape(len(y), 1, -1) * factor + offset)
    if batch_split_factor not in (None, 1):
        y = np.moveaxis(y.reshape(len(y), batch_split_factor, -1), 1, 0)
    return in_dtype(y, input.dtype)


def npu_fused_matmul(
    x1: Tensor, x2: Tensor, *, bias: Tensor | None = None, x3: Tensor | None = None, fused_op_type: str = ""
) -> Tensor:
    """Return a product and what follows it."""
    y = np.matmul(floats(x1), floats(x2)) + (0.0 if bias is None else floats(bias))
    if x3 is not None:
        y = y + floats(x3) if fused_op_type == "add" else y * floats(x3)
    elif fused_op_type in ("relu", "gelu_erf", "gelu_tanh"):
        y = activated(fused_op_type, y)
    return in_dtype(y, torch.float32 if fused_op_type == "16cast32" else x1.dtype)


def npu_batch_gather_matmul(
    self: Tensor,
    x: Tensor,
    weight_b: Tensor,
    indices: Tensor,
    weight_a: Tensor | None = None,
    layer_idx: int = 0,
    scale: float = 1e-3,
    y_offset: int = 0,
    y_slice_size: int = -1,
) -> Tensor:
    """Return rows to which products with the weights that each chose are added."""
    out = floats(self).copy()
    for i, index in enumerate(indices.tolist()):
        if index >= 0:
            row = floats(x[i])
            row = row if weight_a is None else floats(weight_a[index, layer_idx]) @ row
            added = floats(weight_b[index, layer_idx]) @ row * scale
            out[i, y_offset : y_offset + len(added)] += added
    return in_dtype(out, self.dtype)


def npu_batch_gather_matmul_(
    self: Tensor,
    x: Tensor,
    weight_b: Tensor,
    indices: Tensor,
    weight_a: Tensor | None = None,
    layer_idx: int = 0,
    scale: float = 1e-3,
    y_offset: int = 0,
    y_slice_size: int = -1,
) -> Tensor:
    """Write rows to which products are added."""
    return self.copy_(npu_batch_gather_matmul(self, x, weight_b, indices, weight_a, layer_idx, scale, y_offset))


def npu_bmm_v2_mat1_backward(grad: Tensor, mat1: Tensor, mat2: Tensor, size: Sequence[int]) -> Tensor:
    """Return the first operand's gradient: sums over the columns of the product, and over what was broadcast."""
    left, right = np.broadcast_arrays(np.zeros((*mat1.shape[:-2], 1, 1)), np.zeros((*mat2.shape[:-2], 1, 1)))
    shape = (*left.shape[:-2], mat1.shape[-2], right.shape[-1] * mat2.shape[-1])
    found = np.einsum("...mn,...kn->...mk", floats(grad).reshape(shape), floats(mat2))
    return in_dtype(_summed(found, mat1.shape).reshape(size), mat1.dtype)


def npu_bmm_v2_mat2_backward(grad: Tensor, mat1: Tensor, mat2: Tensor, size: Sequence[int]) -> Tensor:
    """Return the second operand's gradient: sums over the rows of the product, and over what was broadcast."""
    batch = np.broadcast_shapes(mat1.shape[:-2], mat2.shape[:-2])
    values = floats(grad).reshape(*batch, mat1.shape[-2], mat2.shape[-1])
    found = np.einsum("...mk,...mn->...kn", floats(mat1), values)
    return in_dtype(_summed(found, mat2.shape).reshape(size), mat2.dtype)


def _summed(values: Array, shape: Sequence[int]) -> Array:
    while values.ndim > len(shape):
        values = values.sum(0)
    for dim, size in enumerate(shape):
        if size == 1 and values.shape[dim] != 1:
            values = values.sum(dim, keepdims=True)
    return values


def npu_ffn(
    x: Tensor,
    weight1: Tensor,
    weight2: Tensor,
    activation: str,
    *,
    expert_tokens: Sequence[int] | None = None,
    expert_tokens_index: Sequence[int] | None = None,
    bias1: Tensor | None = None,
    bias2: Tensor | None = None,
    scale: Tensor | None = None,
    offset: Tensor | None = None,
    deq_scale1: Tensor | None = None,
    deq_scale2: Tensor | None = None,
    antiquant_scale1: Tensor | None = None,
    antiquant_scale2: Tensor | None = None,
    antiquant_offset1: Tensor | None = None,
    antiquant_offset2: Tensor | None = None,
    inner_precise: int | None = None,
    output_dtype: torch.dtype | None = None,
) -> Tensor:
    """Return two layers, for each row those of its expert."""
    rows = floats(x).reshape(-1, x.shape[-1])
    experts = owners(expert_tokens, 1) if expert_tokens else owners(expert_tokens_index or [], 0)
    out = []
    for i, row in enumerate(rows):
        expert = experts[i] if experts else None
        first = (weight1, bias1, antiquant_scale1, antiquant_offset1, deq_scale1)
        second = (weight2, bias2, antiquant_scale2, antiquant_offset2, deq_scale2)
        hidden = activated(activation, _layer(row, expert, *first))
        if scale is not None:
            hidden = hidden * _of(expert, scale) + (0.0 if offset is None else _of(expert, offset))
            hidden = np.clip(np.rint(hidden), -128, 127)
        out.append(_layer(hidden, expert, *second))
    dtype = x.dtype if x.is_floating_point() else output_dtype or torch.float16
    return in_dtype(np.stack(out), dtype).reshape(*x.shape[:-1], -1)


def _of(expert: int | None, parameter: Tensor) -> Array:
    values = read_scale(parameter)[0] if parameter.dtype is torch.int64 else floats(parameter)
    return np.asarray(values if expert is None else values[expert])


def _layer(
    x: Array,
    expert: int | None,
    weight: Tensor,
    bias: Tensor | None,
    factor: Tensor | None,
    shift: Tensor | None,
    scale: Tensor | None,
) -> Array:
    matrix = _of(expert, weight)
    if factor is not None:
        matrix = (matrix + (0.0 if shift is None else _of(expert, shift))) * _of(expert, factor)
    y = x @ matrix + (0.0 if bias is None else _of(expert, bias))
    return np.asarray(y if scale is None else y * _of(expert, scale))

"""Matrix products with what comes before and behind them, computed independently of the golden definitions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema
from tests.support.cann.operators.grouped_products import owners
from tests.support.cann.packed import Array, activated, floats, in_dtype, read_scale, to_int8


@by_schema
def npu_transpose_batchmatmul(args: Arguments) -> Tensor:
    """Return one product for each batch, of permuted operands."""
    x, w = (
        floats(args.input).transpose(args.perm_x1 or (0, 1, 2)),
        floats(args.weight).transpose(args.perm_x2 or (0, 1, 2)),
    )
    y = np.stack([x[b] @ w[b] for b in range(len(x))]).transpose(args.perm_y or (1, 0, 2))
    if args.scale is not None:
        factor, offset = read_scale(args.scale)
        return to_int8(y.reshape(len(y), 1, -1) * factor + offset)
    if args.batch_split_factor not in (None, 1):
        y = np.moveaxis(y.reshape(len(y), args.batch_split_factor, -1), 1, 0)
    return in_dtype(y, args.input.dtype)


@by_schema
def npu_fused_matmul(args: Arguments) -> Tensor:
    """Return a product and what follows it."""
    y = np.matmul(floats(args.x1), floats(args.x2)) + (0.0 if args.bias is None else floats(args.bias))
    if args.x3 is not None:
        y = y + floats(args.x3) if args.fused_op_type == "add" else y * floats(args.x3)
    elif args.fused_op_type in ("relu", "gelu_erf", "gelu_tanh"):
        y = activated(args.fused_op_type, y)
    return in_dtype(y, torch.float32 if args.fused_op_type == "16cast32" else args.x1.dtype)


@by_schema
def npu_batch_gather_matmul(args: Arguments) -> Tensor:
    """Return rows to which products with the weights that each chose are added."""
    out = floats(args.self).copy()
    for i, index in enumerate(args.indices.tolist()):
        if index >= 0:
            row = floats(args.x[i])
            row = row if args.weight_a is None else floats(args.weight_a[index, args.layer_idx]) @ row
            added = floats(args.weight_b[index, args.layer_idx]) @ row * args.scale
            out[i, args.y_offset : args.y_offset + len(added)] += added
    return in_dtype(out, args.self.dtype)


@by_schema
def npu_batch_gather_matmul_(args: Arguments) -> Tensor:
    """Write rows to which products are added."""
    return args.self.copy_(
        npu_batch_gather_matmul(
            args.self, args.x, args.weight_b, args.indices, args.weight_a, args.layer_idx, args.scale, args.y_offset
        )
    )


@by_schema
def npu_bmm_v2_mat1_backward(args: Arguments) -> Tensor:
    """Return the first operand's gradient: sums over the columns of the product, and over what was broadcast."""
    left, right = np.broadcast_arrays(np.zeros((*args.mat1.shape[:-2], 1, 1)), np.zeros((*args.mat2.shape[:-2], 1, 1)))
    shape = (*left.shape[:-2], args.mat1.shape[-2], right.shape[-1] * args.mat2.shape[-1])
    found = np.einsum("...mn,...kn->...mk", floats(args.grad).reshape(shape), floats(args.mat2))
    return in_dtype(_summed(found, args.mat1.shape).reshape(args.size), args.mat1.dtype)


@by_schema
def npu_bmm_v2_mat2_backward(args: Arguments) -> Tensor:
    """Return the second operand's gradient: sums over the rows of the product, and over what was broadcast."""
    batch = np.broadcast_shapes(args.mat1.shape[:-2], args.mat2.shape[:-2])
    values = floats(args.grad).reshape(*batch, args.mat1.shape[-2], args.mat2.shape[-1])
    found = np.einsum("...mk,...mn->...kn", floats(args.mat1), values)
    return in_dtype(_summed(found, args.mat2.shape).reshape(args.size), args.mat2.dtype)


def _summed(values: Array, shape: Sequence[int]) -> Array:
    while values.ndim > len(shape):
        values = values.sum(0)
    for dim, size in enumerate(shape):
        if size == 1 and values.shape[dim] != 1:
            values = values.sum(dim, keepdims=True)
    return values


@by_schema
def npu_ffn(args: Arguments) -> Tensor:
    """Return two layers, for each row those of its expert."""
    rows = floats(args.x).reshape(-1, args.x.shape[-1])
    experts = owners(args.expert_tokens, 1) if args.expert_tokens else owners(args.expert_tokens_index or [], 0)
    out = []
    for i, row in enumerate(rows):
        expert = experts[i] if experts else None
        first = (args.weight1, args.bias1, args.antiquant_scale1, args.antiquant_offset1, args.deq_scale1)
        second = (args.weight2, args.bias2, args.antiquant_scale2, args.antiquant_offset2, args.deq_scale2)
        hidden = activated(args.activation, _layer(row, expert, *first))
        if args.scale is not None:
            hidden = hidden * _of(expert, args.scale) + (0.0 if args.offset is None else _of(expert, args.offset))
            hidden = np.clip(np.rint(hidden), -128, 127)
        out.append(_layer(hidden, expert, *second))
    dtype = args.x.dtype if args.x.is_floating_point() else args.output_dtype or torch.float16
    return in_dtype(np.stack(out), dtype).reshape(*args.x.shape[:-1], -1)


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

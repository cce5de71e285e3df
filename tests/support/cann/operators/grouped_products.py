"""Products of groups of rows, computed row by row and independently of the golden definitions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema
from tests.support.cann.operators.quantized_products import quantized
from tests.support.cann.packed import (
    Array,
    activated,
    by_blocks,
    by_halves,
    exponents,
    floats,
    in_dtype,
    read_scale,
    to_int8,
    whole,
)

_ACTIVATIONS = ("none", "relu", "gelu_tanh", "gelu_erf", "fastgelu", "silu")
_BY_NUMBER = {1: torch.int8, 3: torch.int32, 5: torch.float16, 6: torch.float32, 15: torch.bfloat16}


def owners(groups: Tensor | Sequence[int], kind: int | None) -> list[int]:
    """Return the group of each row."""
    if kind == 2:
        return [int(number) for number, size in groups for _ in range(int(size))]  # type: ignore[misc]
    numbers = [int(number) for number in groups]
    sizes = numbers if kind == 1 else [end - start for start, end in zip([0, *numbers], numbers, strict=False)]
    return [group for group, size in enumerate(sizes) for _ in range(size)]


def _at(tensors: Sequence[Tensor] | None, group: int) -> Tensor | None:
    if not tensors:
        return None
    return tensors[group] if len(tensors) > 1 else tensors[0][group]


def _weights(weight: Sequence[Tensor], inner: int) -> list[Array]:
    found = [whole(each, inner) for each in weight]
    return list(found[0]) if len(found) == 1 and found[0].ndim == 3 else found


@by_schema
def npu_grouped_matmul(args: Arguments) -> list[Tensor]:
    """Return the products of groups, one row after the other."""
    dtype = (
        _BY_NUMBER[args.output_dtype] if isinstance(args.output_dtype, int) else args.output_dtype or args.x[0].dtype
    )
    if args.group_type == 2:
        named = owners([] if args.group_list is None else args.group_list, args.group_list_type)
        return _by_inner(args.x[0], args.weight[0], named, args.split_item, dtype)
    inner = args.x[0].shape[-1] * (8 if args.x[0].dtype is torch.int32 else 1)
    matrices = _weights(args.weight, inner)
    is_mixed = args.weight[0].dtype is torch.int32 and args.x[0].dtype is torch.int8
    rows = [(part, list(whole(part))) for part in args.x]
    if args.group_list is not None and len(args.x) == 1:
        named = owners(args.group_list, args.group_list_type)
    else:
        named = [group for group, (_, values) in enumerate(rows) for _ in values]
    tokens = None if not args.per_token_scale else np.concatenate([exponents(each) for each in args.per_token_scale])
    flat = [row for _, values in rows for row in values]
    found = []
    for i, group in enumerate(named):
        w = matrices[group]
        w = _dequantized(w, _at(args.antiquant_scale, group), _at(args.antiquant_offset, group))
        token = None if tokens is None else tokens[i]
        found.append(
            _row(
                flat[i],
                w,
                _at(args.bias, group),
                _at(args.scale, group),
                _at(args.offset, group),
                token,
                dtype,
                is_mixed,
            )
        )
    found = [activated(_ACTIVATIONS[args.act_type or 0], each) for each in found]
    if args.split_item in (2, 3):
        left = [np.zeros_like(found[0])] * (len(flat) - len(found))
        return [_rounded(np.stack(found + left), dtype)]
    parts = [[each for each, of in zip(found, named, strict=True) if of == group] for group in range(len(matrices))]
    return [
        _rounded(np.asarray(part).reshape(len(part), w.shape[1]), dtype)
        for part, w in zip(parts, matrices, strict=True)
    ]


def _dequantized(w: Array, scale: Tensor | None, offset: Tensor | None) -> Array:
    if scale is None:
        return w
    each = w.shape[0] // (scale.shape[0] if scale.dim() > 1 else 1)
    factor = np.repeat(np.atleast_2d(floats(scale)), each, 0)
    shift = 0.0 if offset is None else np.repeat(np.atleast_2d(floats(offset)), each, 0)
    return np.asarray((w + shift) * factor)


def _row(
    x: Array,
    w: Array,
    bias: Tensor | None,
    scale: Tensor | None,
    offset: Tensor | None,
    token: Array | None,
    dtype: torch.dtype,
    is_mixed: bool,
) -> Array:
    added = 0.0 if bias is None else floats(bias)
    if scale is None or dtype is torch.int32:
        return np.asarray(x @ w + added)
    if token is not None and np.ndim(token):
        right = np.moveaxis(exponents(scale), -1, 1).reshape(-1, w.shape[1])
        return by_blocks(x[None], w, token.reshape(1, -1), right, 32, group_m=1, group_n=1)[0] + added
    factor, shift = read_scale(scale)
    share = 1.0 if token is None else float(token)
    if is_mixed and bias is not None and bias.is_floating_point():
        return np.asarray(by_halves(x[None], w, factor, floats(bias))[0] * share)
    is_whole = bias is not None and not bias.is_floating_point()
    out = (x @ w + (added if is_whole else 0.0)) * factor * share + (0.0 if is_whole else added)
    return np.asarray(out + (floats(offset) if offset is not None else shift if dtype is torch.int8 else 0.0))


def _rounded(values: Array, dtype: torch.dtype) -> Tensor:
    if dtype is torch.int8:
        return to_int8(values)
    return torch.from_numpy(values.astype(np.int32)) if dtype is torch.int32 else in_dtype(values, dtype)


def _by_inner(x: Tensor, weight: Tensor, named: list[int], split_item: int | None, dtype: torch.dtype) -> list[Tensor]:
    left, right = floats(x), floats(weight)
    out = np.zeros((max(named) + 1, left.shape[0], right.shape[1]))
    for k, group in enumerate(named):
        out[group] += np.outer(left[:, k], right[k])
    return [in_dtype(out, dtype)] if split_item in (2, 3) else [in_dtype(each, dtype) for each in out]


@by_schema
def npu_grouped_matmul_add(args: Arguments) -> Tensor:
    """Return what was accumulated and the outer products of the rows of each group."""
    out = floats(args.self).copy().reshape(len(args.group_list), args.x.shape[1], args.weight.shape[1])
    for k, group in enumerate(owners(args.group_list, args.group_list_type)):
        out[group] += np.outer(floats(args.x[k]), floats(args.weight[k]))
    return in_dtype(out, torch.float32).reshape(args.self.shape)


@by_schema
def npu_grouped_matmul_add_(args: Arguments) -> Tensor:
    """Write what was accumulated and the outer products."""
    return args.self.copy_(
        npu_grouped_matmul_add(args.self, args.x, args.weight, args.group_list, group_list_type=args.group_list_type)
    )


@by_schema
def npu_add_quant_gmm(args: Arguments) -> Tensor:
    """Return what was accumulated and the scaled outer products of each group of columns of x1 and rows of x2."""
    x, w, out = floats(args.x1), floats(args.x2), floats(args.self).copy()
    named = owners(args.group_list, args.group_list_type)
    for k, group in enumerate(named):
        start = named.index(group)
        product = np.outer(x[:, k], w[k])
        if args.x2_scale.dim() == 3 and args.x1_scale is not None:
            block, half = start // 64 + group + (k - start) // 64, (k - start) // 32 % 2
            left, right = exponents(args.x1_scale)[:, block, half], exponents(args.x2_scale)[block, :, half]
            out[group] += product * np.outer(left, right)
        else:
            token = 1.0 if args.x1_scale is None else float(floats(args.x1_scale).reshape(len(args.group_list))[group])
            out[group] += product * np.atleast_1d(floats(args.x2_scale)[group]) * token
    return in_dtype(out, torch.float32)


@by_schema
def npu_add_quant_gmm_(args: Arguments) -> Tensor:
    """Write what was accumulated and the scaled products."""
    return args.self.copy_(
        npu_add_quant_gmm(
            args.self,
            args.x1,
            args.x2,
            args.x2_scale,
            args.group_list,
            x1_scale=args.x1_scale,
            group_list_type=args.group_list_type,
        )
    )


@by_schema
def npu_grouped_matmul_finalize_routing(args: Arguments) -> Tensor:
    """Return the products of the rows, weighted and added up where each belongs."""
    rows, weights = floats(args.x), whole(args.w, args.x.shape[1])
    out = np.zeros((args.output_bs or len(rows), weights.shape[2]))
    for i, group in enumerate(owners(args.group_list, args.group_list_type)):
        factor = np.ones(1) if args.scale is None else read_scale(args.scale)[0][group].reshape(-1)
        if args.w.dtype is torch.int32 and args.bias is not None:
            y = by_halves(rows[i : i + 1], weights[group], factor, floats(args.bias)[group])[0]
        else:
            y = rows[i] @ weights[group] * factor
        y = y * (1.0 if args.pertoken_scale is None else float(args.pertoken_scale[i]))
        if args.bias is not None and args.w.dtype is not torch.int32:
            y = y + floats(args.bias)[group]
        out[i if args.row_index is None else int(args.row_index[i])] += y * (
            1.0 if args.logit is None else float(args.logit[i])
        )
    if args.shared_input is not None:
        first = args.shared_input_offset or 0
        out[first : first + len(args.shared_input)] += floats(args.shared_input) * (args.shared_input_weight or 0.0)
    return in_dtype(out, torch.float32)


def _swiglu_quantized(products: list[Array], total: int) -> tuple[Tensor, Tensor]:
    y, scales = np.zeros((total, len(products[0]) // 2)), np.zeros(total)
    for i, row in enumerate(products):
        scales[i] = np.abs(row[: len(row) // 2]).max() / 127
        y[i] = row[: len(row) // 2] / (scales[i] or 1.0)
    return to_int8(y), in_dtype(scales, torch.float32)


@by_schema
def npu_grouped_matmul_swiglu_quant(args: Arguments) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the quantized products, and nothing for the offset that is reserved."""
    y, scale = npu_grouped_matmul_swiglu_quant_v2(
        args.x, [args.weight], [args.weight_scale], args.x_scale, args.group_list
    )
    return y, scale, None


@by_schema
def npu_grouped_matmul_swiglu_quant_v2(args: Arguments) -> tuple[Tensor, Tensor]:
    """Return the quantized products of the rows after SwiGLU."""
    rows = whole(args.x)
    matrices = _weights(args.weight, rows.shape[1])
    found = []
    for i, group in enumerate(owners(args.group_list, args.group_list_type)):
        scale = _at(args.weight_scale, group)
        assert scale is not None
        assist = _at(args.weight_assist_matrix, group)
        factor = read_scale(scale)[0].reshape(-1, matrices[group].shape[1])
        if assist is not None:
            product = by_halves(rows[i : i + 1], matrices[group], factor, floats(assist))[0]
        else:
            product = rows[i] @ (matrices[group] * np.repeat(factor, rows.shape[1] // len(factor), 0))
        left, right = np.split(product * float(args.x_scale[i]), 2)
        smooth = 1.0 if args.smooth_scale is None else floats(args.smooth_scale)[group]
        found.append(np.concatenate([activated("silu", left) * right * smooth, right]))
    return _swiglu_quantized(found, len(rows))


@by_schema
def npu_quant_grouped_matmul_dequant(args: Arguments) -> Tensor:
    """Return the products of rows that are quantized on the way."""
    rows, scale = quantized(args.x, args.smooth_scale, args.x_scale)
    factor, _ = read_scale(args.weight_scale)
    out = np.zeros((len(rows), args.quantized_weight.shape[1]))
    for i, group in enumerate(owners(args.group_list, 0)):
        product = floats(args.quantized_weight[group]) @ rows[i] + (
            0.0 if args.bias is None else floats(args.bias)[group]
        )
        out[i] = product * factor[group] * (scale[i] if args.weight_scale.is_floating_point() else 1.0)
    return in_dtype(out, torch.float16)

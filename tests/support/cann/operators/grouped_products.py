"""Products of groups of rows, computed row by row and independently of the golden definitions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

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


def npu_grouped_matmul(
    x: Sequence[Tensor],
    weight: Sequence[Tensor],
    *,
    bias: Sequence[Tensor] | None = None,
    scale: Sequence[Tensor] | None = None,
    offset: Sequence[Tensor] | None = None,
    antiquant_scale: Sequence[Tensor] | None = None,
    antiquant_offset: Sequence[Tensor] | None = None,
    per_token_scale: Sequence[Tensor] | None = None,
    group_list: Tensor | Sequence[int] | None = None,
    activation_input: Sequence[Tensor] | None = None,
    activation_quant_scale: Sequence[Tensor] | None = None,
    activation_quant_offset: Sequence[Tensor] | None = None,
    split_item: int | None = 0,
    group_type: int | None = None,
    group_list_type: int | None = 0,
    act_type: int | None = 0,
    tuning_config: Sequence[int] | None = None,
    output_dtype: torch.dtype | int | None = None,
    x_dtype: int | None = None,
    weight_dtype: int | None = None,
    scale_dtype: int | None = None,
    per_token_scale_dtype: int | None = None,
) -> list[Tensor]:
    """Return the products of groups, one row after the other."""
    dtype = _BY_NUMBER[output_dtype] if isinstance(output_dtype, int) else output_dtype or x[0].dtype
    if group_type == 2:
        named = owners([] if group_list is None else group_list, group_list_type)
        return _by_inner(x[0], weight[0], named, split_item, dtype)
    inner = x[0].shape[-1] * (8 if x[0].dtype is torch.int32 else 1)
    matrices = _weights(weight, inner)
    is_mixed = weight[0].dtype is torch.int32 and x[0].dtype is torch.int8
    rows = [(part, list(whole(part))) for part in x]
    if group_list is not None and len(x) == 1:
        named = owners(group_list, group_list_type)
    else:
        named = [group for group, (_, values) in enumerate(rows) for _ in values]
    tokens = None if not per_token_scale else np.concatenate([exponents(each) for each in per_token_scale])
    flat = [row for _, values in rows for row in values]
    found = []
    for i, group in enumerate(named):
        w = matrices[group]
        w = _dequantized(w, _at(antiquant_scale, group), _at(antiquant_offset, group))
        token = None if tokens is None else tokens[i]
        found.append(_row(flat[i], w, _at(bias, group), _at(scale, group), _at(offset, group), token, dtype, is_mixed))
    found = [activated(_ACTIVATIONS[act_type or 0], each) for each in found]
    if split_item in (2, 3):
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
    """Return what was accumulated and the outer products of the rows of each group."""
    out = floats(self).copy().reshape(len(group_list), x.shape[1], weight.shape[1])
    for k, group in enumerate(owners(group_list, group_list_type)):
        out[group] += np.outer(floats(x[k]), floats(weight[k]))
    return in_dtype(out, torch.float32).reshape(self.shape)


def npu_grouped_matmul_add_(
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
    """Write what was accumulated and the outer products."""
    return self.copy_(npu_grouped_matmul_add(self, x, weight, group_list, group_list_type=group_list_type))


def npu_add_quant_gmm(
    self: Tensor,
    x1: Tensor,
    x2: Tensor,
    x2_scale: Tensor,
    group_list: Tensor,
    *,
    x1_scale: Tensor | None = None,
    group_list_type: int | None = 0,
    group_sizes: Sequence[int] | None = None,
    x1_dtype: int | None = None,
    x2_dtype: int | None = None,
    x1_scale_dtype: int | None = None,
    x2_scale_dtype: int | None = None,
) -> Tensor:
    """Return what was accumulated and the scaled outer products of each group of columns of x1 and rows of x2."""
    x, w, out = floats(x1), floats(x2), floats(self).copy()
    named = owners(group_list, group_list_type)
    for k, group in enumerate(named):
        start = named.index(group)
        product = np.outer(x[:, k], w[k])
        if x2_scale.dim() == 3 and x1_scale is not None:
            block, half = start // 64 + group + (k - start) // 64, (k - start) // 32 % 2
            left, right = exponents(x1_scale)[:, block, half], exponents(x2_scale)[block, :, half]
            out[group] += product * np.outer(left, right)
        else:
            token = 1.0 if x1_scale is None else float(floats(x1_scale).reshape(len(group_list))[group])
            out[group] += product * np.atleast_1d(floats(x2_scale)[group]) * token
    return in_dtype(out, torch.float32)


def npu_add_quant_gmm_(
    self: Tensor,
    x1: Tensor,
    x2: Tensor,
    x2_scale: Tensor,
    group_list: Tensor,
    *,
    x1_scale: Tensor | None = None,
    group_list_type: int | None = 0,
    group_sizes: Sequence[int] | None = None,
    x1_dtype: int | None = None,
    x2_dtype: int | None = None,
    x1_scale_dtype: int | None = None,
    x2_scale_dtype: int | None = None,
) -> Tensor:
    """Write what was accumulated and the scaled products."""
    return self.copy_(
        npu_add_quant_gmm(self, x1, x2, x2_scale, group_list, x1_scale=x1_scale, group_list_type=group_list_type)
    )


def npu_grouped_matmul_finalize_routing(
    x: Tensor,
    w: Tensor,
    group_list: Tensor,
    *,
    scale: Tensor | None = None,
    bias: Tensor | None = None,
    offset: Tensor | None = None,
    pertoken_scale: Tensor | None = None,
    shared_input: Tensor | None = None,
    logit: Tensor | None = None,
    row_index: Tensor | None = None,
    dtype: torch.dtype | None = None,
    shared_input_weight: float | None = 1.0,
    shared_input_offset: int | None = 0,
    output_bs: int | None = 0,
    group_list_type: int | None = 1,
    tuning_config: Sequence[int] | None = None,
    x_dtype: int | None = None,
    w_dtype: int | None = None,
    scale_dtype: int | None = None,
    pertoken_scale_dtype: int | None = None,
) -> Tensor:
    """Return the products of the rows, weighted and added up where each belongs."""
    rows, weights = floats(x), whole(w, x.shape[1])
    out = np.zeros((output_bs or len(rows), weights.shape[2]))
    for i, group in enumerate(owners(group_list, group_list_type)):
        factor = np.ones(1) if scale is None else read_scale(scale)[0][group].reshape(-1)
        if w.dtype is torch.int32 and bias is not None:
            y = by_halves(rows[i : i + 1], weights[group], factor, floats(bias)[group])[0]
        else:
            y = rows[i] @ weights[group] * factor
        y = y * (1.0 if pertoken_scale is None else float(pertoken_scale[i]))
        if bias is not None and w.dtype is not torch.int32:
            y = y + floats(bias)[group]
        out[i if row_index is None else int(row_index[i])] += y * (1.0 if logit is None else float(logit[i]))
    if shared_input is not None:
        first = shared_input_offset or 0
        out[first : first + len(shared_input)] += floats(shared_input) * (shared_input_weight or 0.0)
    return in_dtype(out, torch.float32)


def _swiglu_quantized(products: list[Array], total: int) -> tuple[Tensor, Tensor]:
    y, scales = np.zeros((total, len(products[0]) // 2)), np.zeros(total)
    for i, row in enumerate(products):
        scales[i] = np.abs(row[: len(row) // 2]).max() / 127
        y[i] = row[: len(row) // 2] / (scales[i] or 1.0)
    return to_int8(y), in_dtype(scales, torch.float32)


def npu_grouped_matmul_swiglu_quant(
    x: Tensor,
    weight: Tensor,
    group_list: Tensor,
    weight_scale: Tensor,
    x_scale: Tensor,
    *,
    bias: Tensor | None = None,
    offset: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the quantized products, and nothing for the offset that is reserved."""
    y, scale = npu_grouped_matmul_swiglu_quant_v2(x, [weight], [weight_scale], x_scale, group_list)
    return y, scale, None


def npu_grouped_matmul_swiglu_quant_v2(
    x: Tensor,
    weight: Sequence[Tensor],
    weight_scale: Sequence[Tensor],
    x_scale: Tensor,
    group_list: Tensor,
    *,
    smooth_scale: Tensor | None = None,
    weight_assist_matrix: Sequence[Tensor] | None = None,
    bias: Tensor | None = None,
    dequant_mode: int | None = 0,
    dequant_dtype: int | None = 6,
    quant_mode: int | None = 0,
    quant_dtype: int | None = 1,
    group_list_type: int | None = 0,
    tuning_config: Sequence[int] | None = None,
    x_dtype: int | None = None,
    weight_dtype: int | None = None,
    weight_scale_dtype: int | None = None,
    x_scale_dtype: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the quantized products of the rows after SwiGLU."""
    rows = whole(x)
    matrices = _weights(weight, rows.shape[1])
    found = []
    for i, group in enumerate(owners(group_list, group_list_type)):
        scale = _at(weight_scale, group)
        assert scale is not None
        assist = _at(weight_assist_matrix, group)
        factor = read_scale(scale)[0].reshape(-1, matrices[group].shape[1])
        if assist is not None:
            product = by_halves(rows[i : i + 1], matrices[group], factor, floats(assist))[0]
        else:
            product = rows[i] @ (matrices[group] * np.repeat(factor, rows.shape[1] // len(factor), 0))
        left, right = np.split(product * float(x_scale[i]), 2)
        smooth = 1.0 if smooth_scale is None else floats(smooth_scale)[group]
        found.append(np.concatenate([activated("silu", left) * right * smooth, right]))
    return _swiglu_quantized(found, len(rows))


def npu_quant_grouped_matmul_dequant(
    x: Tensor,
    quantized_weight: Tensor,
    weight_scale: Tensor,
    group_list: Tensor,
    *,
    bias: Tensor | None = None,
    x_scale: Tensor | None = None,
    x_offset: Tensor | None = None,
    smooth_scale: Tensor | None = None,
    quant_mode: str | None = "pertoken",
) -> Tensor:
    """Return the products of rows that are quantized on the way."""
    rows, scale = quantized(x, smooth_scale, x_scale)
    factor, _ = read_scale(weight_scale)
    out = np.zeros((len(rows), quantized_weight.shape[1]))
    for i, group in enumerate(owners(group_list, 0)):
        product = floats(quantized_weight[group]) @ rows[i] + (0.0 if bias is None else floats(bias)[group])
        out[i] = product * factor[group] * (scale[i] if weight_scale.is_floating_point() else 1.0)
    return in_dtype(out, torch.float16)

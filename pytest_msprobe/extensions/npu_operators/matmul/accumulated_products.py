"""Products that are added to what was accumulated before: of floats by groups, and of floats of 8 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_msprobe.extensions.npu_operators.experts.expert_groups import group_sizes as sizes_of_groups
from pytest_msprobe.extensions.npu_operators.matmul.packed_numbers import numbers
from pytest_msprobe.extensions.npu_operators.matmul.scaled_products import scaled_product
from pytest_msprobe.extensions.npu_operators.reference_arguments import refuse
from pytest_msprobe.extensions.npu_operators.twins import in_place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


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
    parts = zip(*(torch.split(each[: sum(sizes)].to(self.dtype), sizes) for each in (x, weight)), strict=True)
    return self + torch.stack([left.mT @ right for left, right in parts]).reshape(self.shape)


npu_grouped_matmul_add_ = in_place(npu_grouped_matmul_add)


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


npu_add_quant_matmul_ = in_place(npu_add_quant_matmul)


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
        scales = (_of_group(each, group, start, size) for each in (factors, tokens))
        factor, token = scales
        token = token.transpose(0, 1) if token is not None and token.dim() == 3 else token
        added.append(scaled_product(left[rows].mT, right[rows], factor, token))
        start += size
    return self + torch.stack(added).to(self.dtype).reshape(self.shape)


npu_add_quant_gmm_ = in_place(npu_add_quant_gmm)


def _of_group(scale: Tensor | None, group: int, start: int, size: int) -> Tensor | None:
    if scale is None or scale.dim() < 3:
        return None if scale is None else scale[group]
    first = start // 64 + group
    return scale[first : first + -(-size // 64)]

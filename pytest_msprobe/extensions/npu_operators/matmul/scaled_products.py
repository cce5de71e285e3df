"""Products of quantized matrices with the scales of their operands, by number, row, column or block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_BLOCK, _MX_BLOCK = 128, 32


def exact_product(x1: Tensor, x2: Tensor) -> Tensor:
    """Return x1 @ x2 in float64, in which sums of products of 8 bits are exact."""
    return x1.double() @ x2.double()


def scaled_product(
    x1: Tensor,
    x2: Tensor,
    x2_scale: Tensor | None,
    x1_scale: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    group_sizes: Sequence[int] | None = None,
) -> Tensor:
    """Return x1 @ x2, each element of both multiplied by its scale, and ``bias``, in float64.

    ``x1`` is (..., m, k), ``x2`` (..., k, n). ``x1_scale`` is one number or (m,) or has blocks of rows and columns:
    (m, 1), (m / g, k / g); ``x2_scale`` one number or (n,), (1, n), (k / g, n / g). A last dimension of 2 behind the
    matrix's own pairs blocks of 32, as MX quantization does: (m, k / 64, 2), (k / 64, n, 2). ``group_sizes`` are
    those of (m, n, k); what it leaves open is 128, or what divides the matrix evenly.

    A bias of whole numbers, and one of the products of floats without blocks, is scaled with the product; another one
    is added behind the scales. Source: the formulas of aclnnQuantMatmulV5.
    """
    group_m, group_n, group_k = group_sizes or (0, 0, 0)
    left = None if x1_scale is None else _of_matrix(x1_scale, x1, -1)
    right = None if x2_scale is None else _of_matrix(x2_scale, x2, -2)
    has_blocks = any(scale is not None and scale.shape[dim] > 1 for scale, dim in ((left, -1), (right, -2)))
    if has_blocks:
        is_mx = any(scale is not None and scale.dim() > x.dim() for scale, x in ((x1_scale, x1), (x2_scale, x2)))
        group_k = _MX_BLOCK if is_mx else group_k
        x1 = x1.double() if left is None else x1.double() * _spread(left, x1, group_m, group_k)
        x2 = x2.double() if right is None else x2.double() * _spread(right, x2, group_k, group_n)
        left = right = None
    product = exact_product(x1, x2)
    is_scaled_too = bias is not None and not has_blocks and (x1.is_floating_point() or not bias.is_floating_point())
    if bias is not None and is_scaled_too:
        product = product + bias.double()
    for scale in (right, left):
        product = product if scale is None else product * _spread(scale, product, group_m, group_n)
    return product if bias is None or is_scaled_too else product + bias.double()


def _of_matrix(scale: Tensor, matrix: Tensor, inner: int) -> Tensor:
    """Return a scale with the dimensions of its matrix; ``inner`` is the one over which the product sums."""
    values = scale.double()
    if values.dim() > matrix.dim() and values.shape[-1] == 2:
        return values.flatten(-2) if inner == -1 else values.movedim(-1, -2).flatten(-3, -2)
    if values.dim() == 1 and values.numel() != 1:
        return values.unsqueeze(inner)
    return values.reshape(1, 1) if values.dim() < 2 else values


def _spread(scale: Tensor, matrix: Tensor, group_rows: int, group_columns: int) -> Tensor:
    """Repeat what the blocks of a matrix have for each of their elements."""
    for dim, group in ((-2, group_rows), (-1, group_columns)):
        size, count = matrix.shape[dim], scale.shape[dim]
        if count not in (1, size):
            even = size // count if -(-size // _BLOCK) != count else _BLOCK
            scale = scale.repeat_interleave(group or even, dim).narrow(dim, 0, size)
    return scale


def by_halves(x: Tensor, weight: Tensor, scale: Tensor, token_scale: Tensor | None, added: Tensor) -> Tensor:
    """Return (x @ weight - 8 * the sum of weight's rows) * scale + added, times ``token_scale``, in float64.

    Multiplies int8 by numbers of 4 bits as the device does: x is 16 * h + l + 8 with halves h and l of 4 bits, and
    what the 8 contributes is given as ``added``. Source: the documentation of aclnnGroupedMatmulSwigluQuantV2.
    """
    lowest = torch.full((1, x.shape[-1]), 8, dtype=torch.int8)
    out = scaled_product(x, weight, scale) - scaled_product(lowest, weight, scale) + added.double()
    return out if token_scale is None else out * token_scale.double().reshape(-1, 1)

"""Operands of matrix products: packed numbers, and scales of each row, column or block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.quantization.number_formats import E1M2, E2M1, decode_hifloat8, numbers_in
from pytest_msprobe.extensions.npu_operators.quantization.quantization import rounded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: torch_npu's numbers of its own dtypes; up to 44 they are torch's.
INT4: Final = 285
HIFLOAT8: Final = 290
FLOAT8_E8M0: Final = 293
FLOAT4_E2M1: Final = 296
FLOAT4_E1M2: Final = 297

_NATIVE = {23, 24, 44, 291, 292}
_WHOLE_DTYPES: dict[object, torch.dtype] = {
    None: torch.int8, torch.int8: torch.int8, 1: torch.int8, torch.int32: torch.int32, 3: torch.int32,
}  # fmt: skip
_BITS_OF_SCALE = 0xFFFFFFFF
_OFFSET_AT, _OFFSET_BITS, _OFFSET_SIGN = 37, 0x1FF, 0x100
# The cube unit reads the sign, the exponent and 10 bits of the significand of a scale.
_READ_OF_SCALE = -0x2000


def numbers(api: str, stored: Tensor, dtype: int | None = None, inner: int | None = None) -> Tensor:
    """Return the numbers that a tensor holds: itself, or what its elements of 32 or 8 bits are made of.

    int32 holds eight whole numbers of 4 bits, 8 bits hold two of ``INT4``, ``FLOAT4_E2M1`` or ``FLOAT4_E1M2``, the
    lowest bits first (assumed), along the last dimension, or along the one before where that is packed for ``inner``
    columns of the other operand; or one ``HIFLOAT8`` or ``FLOAT8_E8M0``. Whole numbers are int8, others float32.

    Raises NotImplementedError for another ``dtype`` that torch does not have.
    """
    if stored.dtype is torch.int32 and dtype in (None, INT4):
        return _along(stored, inner, lambda elements: _whole(elements, 8))
    if dtype == INT4:
        return _along(stored, inner, lambda elements: _whole(elements, 2))
    if dtype in (FLOAT4_E2M1, FLOAT4_E1M2):
        of = E2M1 if dtype == FLOAT4_E2M1 else E1M2
        return _along(stored, inner, lambda elements: numbers_in(elements, of).float())
    if dtype == HIFLOAT8:
        return decode_hifloat8(stored.to(torch.uint8)).float()
    if dtype == FLOAT8_E8M0 and not stored.is_floating_point():
        exponents = stored.long() & 0xFF
        return torch.exp2(exponents.double() - 127).masked_fill(exponents == 255, torch.nan)
    if dtype is None or dtype in _NATIVE or stored.is_floating_point():
        return stored
    raise NotImplementedError(f"{api} has no golden definition with dtype {dtype}")


def _along(stored: Tensor, inner: int | None, read: Callable[[Tensor], Tensor]) -> Tensor:
    """Return what ``read`` gives along the last dimension, or along the one before where that is packed."""
    is_in_rows = inner is not None and stored.dim() > 1 and stored.shape[-2] != inner
    return read(stored.mT).mT if is_in_rows else read(stored)


def _whole(elements: Tensor, count: int) -> Tensor:
    """Return the whole numbers of 4 bits that each element holds, as int8."""
    nibbles = ((elements.long().unsqueeze(-1) >> 4 * torch.arange(count)) & 0xF).flatten(-2)
    return ((nibbles ^ 8) - 8).to(torch.int8)


def scale_and_offset(scale: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return a scale, and the offset that one of 64 bits, as ``npu_trans_quant_param`` makes it, has besides.

    The low 32 bits are those of a float32, bits 37 to 45 an offset in [-256, 255].
    """
    if scale.is_floating_point():
        return scale, None
    packed = scale.view(torch.int64) if scale.dtype is torch.uint64 else scale.long()
    factor = (packed & _BITS_OF_SCALE).to(torch.int32).view(torch.float32)
    offset = (((packed >> _OFFSET_AT) & _OFFSET_BITS) ^ _OFFSET_SIGN) - _OFFSET_SIGN
    return factor.double(), offset.double()


def as_packed(scale: Tensor) -> Tensor:
    """Return the part of a scale of float32 that ``npu_trans_quant_param`` keeps: its highest 19 bits."""
    return (scale.float().contiguous().view(torch.int32) & _READ_OF_SCALE).view(torch.float32).to(scale.dtype)


def is_whole(dtype: torch.dtype | int | None) -> bool:
    """Return whether a dtype of results, int8 where there is none, is one of whole numbers."""
    return dtype in _WHOLE_DTYPES


def as_result(values: Tensor, dtype: torch.dtype | int | None) -> Tensor:
    """Return values in a dtype of results: whole numbers rounded half to even and saturated, int8 by default.

    A float that is named by its number in torch's list stays in the precision that it was computed in.
    """
    if dtype in _WHOLE_DTYPES:
        return rounded(values, _WHOLE_DTYPES[dtype])
    return values.to(dtype) if isinstance(dtype, torch.dtype) else values


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

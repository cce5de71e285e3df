"""Numbers for which torch has no dtype: of 4 bits, of 8 bits with a meaning of their own, a scale with its offset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from pytest_msprobe.engine.values.number_formats import E1M2, E2M1, decode_hifloat8, numbers_in
from pytest_msprobe.extensions.npu_operators.quantization.quantization import rounded

if TYPE_CHECKING:
    from collections.abc import Callable

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
    found = ((elements.long().unsqueeze(-1) >> 4 * torch.arange(count)) & 0xF).flatten(-2)
    return ((found ^ 8) - 8).to(torch.int8)


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

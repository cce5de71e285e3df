"""Numbers for which torch has no dtype: of 4 bits, of 8 bits with a meaning of their own, a scale with its offset."""

from __future__ import annotations

from functools import cache
from typing import Final

import torch
from torch import Tensor

from pytest_msprobe.engine.replay.references.quantization.quantization import rounded

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
        return _parts(stored, 8, inner)
    if dtype == INT4:
        return _parts(stored, 2, inner)
    if dtype in (FLOAT4_E2M1, FLOAT4_E1M2):
        table = (0, 0.5, 1, 1.5, 2, 3, 4, 6) if dtype == FLOAT4_E2M1 else (0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75)
        halves = _parts(stored, 2, inner).long()
        return torch.tensor(table)[halves & 7] * torch.where(halves < 0, -1.0, 1.0)
    if dtype == HIFLOAT8:
        return _hifloat8_values()[_bytes(stored)]
    if dtype == FLOAT8_E8M0 and not stored.is_floating_point():
        exponents = _bytes(stored)
        return torch.exp2(exponents.double() - 127).masked_fill(exponents == 255, torch.nan)
    if dtype is None or dtype in _NATIVE or stored.is_floating_point():
        return stored
    raise NotImplementedError(f"{api} has no golden definition with dtype {dtype}")


def _bytes(stored: Tensor) -> Tensor:
    return stored.long() & 0xFF


def _parts(stored: Tensor, count: int, inner: int | None) -> Tensor:
    """Return the whole numbers of 4 bits that each element holds, as int8."""
    is_in_rows = inner is not None and stored.dim() > 1 and stored.shape[-2] != inner
    elements = stored.mT if is_in_rows else stored
    shifts = 4 * torch.arange(count)
    found = ((elements.long().unsqueeze(-1) >> shifts) & 0xF).flatten(-2)
    signed = ((found ^ 8) - 8).to(torch.int8)
    return signed.mT if is_in_rows else signed


@cache
def _hifloat8_values() -> Tensor:
    """Return the values of the 256 numbers of HiFloat8.

    Behind the sign, a prefix code says how many bits the exponent has (11: four, 10: three, 01: two, 001: one, 0001:
    none, 0000: the number is 2^(m - 23)); the exponent is a sign and what follows a leading one, the rest the
    significand. Source: Luo et al., Ascend HiFloat8 Format for Deep Learning, 2024.
    """
    return torch.tensor([_hifloat8(code) for code in range(256)])


def _hifloat8(code: int) -> float:
    sign, rest = (-1.0 if code & 0x80 else 1.0), code & 0x7F
    if rest == 0:
        return torch.nan if code else 0.0
    if rest == 0x6F:
        return sign * torch.inf
    if rest < 8:
        return sign * 2.0 ** (rest - 23)
    prefix, width = next(
        (bits, width)
        for bits, width, code_of in ((2, 4, 3), (2, 3, 2), (2, 2, 1), (3, 1, 1), (4, 0, 1))
        if rest >> (7 - bits) == code_of
    )
    left = 7 - prefix - width
    exponent = _signed_exponent((rest >> left) & ((1 << width) - 1), width)
    return sign * 2.0**exponent * (1 + (rest & ((1 << left) - 1)) / (1 << left))


def _signed_exponent(bits: int, width: int) -> int:
    if not width:
        return 0
    leading = 1 << (width - 1)
    magnitude = leading | (bits & (leading - 1))
    return -magnitude if bits & leading else magnitude


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

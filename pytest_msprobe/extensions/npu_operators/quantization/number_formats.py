"""Numbers of few bits: which of them a dtype argument asks for, how they are rounded and how they lie in memory.

Four bits are packed: two floats in an element of uint8, eight whole numbers in one of int32, the first in the lowest
bits (op-plugin's documentation). HiFloat8, of which torch has no dtype, lies in uint8.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

#: How many numbers share an exponent in the OCP Microscaling Formats.
BLOCK: Final = 32


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """Numbers of few bits, ``packed`` of them in each element of the dtype ``stored``, within [lowest, largest].

    Floats have ``mantissa`` stored bits, down to the power of two ``minimal`` of their smallest normal number, and the
    power ``emax`` of their largest.
    """

    name: str
    stored: torch.dtype
    lowest: float
    largest: float
    packed: int = 1
    mantissa: int = 0
    minimal: int = 0
    emax: int = 0

    @property
    def is_whole(self) -> bool:
        """Return whether these are whole numbers."""
        return self.mantissa == 0 and self is not HIFLOAT8


INT8: Final = NumberFormat("int8", torch.int8, -128, 127)
UINT8: Final = NumberFormat("uint8", torch.uint8, 0, 255)
INT32: Final = NumberFormat("int32", torch.int32, -(2**31), 2**31 - 1)
INT4: Final = NumberFormat("int4", torch.int32, -8, 7, packed=8)
HIFLOAT8: Final = NumberFormat("hifloat8", torch.uint8, -32768, 32768)
E4M3: Final = NumberFormat("float8_e4m3fn", torch.float8_e4m3fn, -448, 448, mantissa=3, minimal=-6, emax=8)
E5M2: Final = NumberFormat("float8_e5m2", torch.float8_e5m2, -57344, 57344, mantissa=2, minimal=-14, emax=15)
E2M1: Final = NumberFormat("float4_e2m1fn_x2", torch.uint8, -6, 6, packed=2, mantissa=1, minimal=0, emax=2)
E1M2: Final = NumberFormat("float4_e1m2fn_x2", torch.uint8, -1.75, 1.75, packed=2, mantissa=2, minimal=0, emax=0)

FLOAT4S: Final = (E2M1, E1M2)
FLOAT8S: Final = (E4M3, E5M2)

# torch's ScalarType, and from 256 on torch_npu's own numbers: aclDataType + 256
_BY_NUMBER = {
    0: UINT8, 1: INT8, 3: INT32, 12: INT8, 13: UINT8, 14: INT32, 16: INT4, 23: E5M2, 24: E4M3, 45: E2M1,
    258: INT8, 259: INT32, 260: UINT8, 285: INT4, 290: HIFLOAT8, 291: E5M2, 292: E4M3, 296: E2M1, 297: E1M2,
}  # fmt: skip
_BY_NAME = {
    "torch.int8": INT8, "torch.qint8": INT8, "torch.uint8": UINT8, "torch.quint8": UINT8, "torch.int32": INT32,
    "torch.qint32": INT32, "torch.quint4x2": INT4, "torch.float8_e5m2": E5M2, "torch.float8_e4m3fn": E4M3,
    "torch.float4_e2m1fn_x2": E2M1,
}  # fmt: skip
_FLOATS = {
    5: torch.float16, 6: torch.float32, 7: torch.float64, 15: torch.bfloat16, 256: torch.float32, 257: torch.float16,
    283: torch.bfloat16,
}  # fmt: skip
# half away from zero where it is called round, as CANN's casts
_ROUNDINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "rint": torch.round,
    "floor": torch.floor,
    "round": lambda values: torch.copysign((values.abs() + 0.5).floor(), values),
}


def number_format(dtype: object) -> NumberFormat | None:
    """Return the format that a dtype argument names: a torch.dtype, or a number of torch's or torch_npu's."""
    if isinstance(dtype, torch.dtype):
        return _BY_NAME.get(str(dtype))
    return _BY_NUMBER.get(int(dtype)) if isinstance(dtype, int) else None


def format_among(api: str, argument: str, dtype: object, supported: tuple[NumberFormat, ...]) -> NumberFormat:
    """Return the format that a dtype argument names, the first of the ``supported`` ones where it is None.

    int32 holds numbers of 4 bits where it is not supported itself. Raises NotImplementedError, with the argument's
    name, for a format that is not supported.
    """
    selected = supported[0] if dtype is None else number_format(dtype)
    selected = INT4 if selected is INT32 and INT32 not in supported else selected
    if selected is None or selected not in supported:
        names = ", ".join(supported_format.name for supported_format in supported)
        raise NotImplementedError(f"{api} has no golden definition with {argument} {dtype}; known are {names}")
    return selected


def float_dtype(dtype: object, default: torch.dtype) -> torch.dtype:
    """Return the float dtype that an argument names, by itself or by a number.

    Raises NotImplementedError for one that is none.
    """
    selected = default if dtype is None else dtype if isinstance(dtype, torch.dtype) else _FLOATS.get(int(str(dtype)))
    if selected is None or not selected.is_floating_point:
        raise NotImplementedError(f"there is no golden definition with a result of the dtype {dtype}")
    return selected


def round_to(values: Tensor, to: NumberFormat, mode: str = "rint") -> Tensor:
    """Return each value's number of a format, in float64: rounded as ``mode`` says and kept within the format.

    ``mode`` is rint (half to even), round (half away from zero) or floor. HiFloat8 is always rounded half away from
    zero. Raises NotImplementedError for another mode.
    """
    wide = values.detach().double()
    if to is HIFLOAT8 and mode in ("rint", "round"):
        return decode_hifloat8(encode_hifloat8(wide))
    if mode not in _ROUNDINGS or to is HIFLOAT8:
        raise NotImplementedError(f"there is no golden definition of rounding to {to.name} by {mode}")
    if to.is_whole:
        return _ROUNDINGS[mode](wide).clamp(to.lowest, to.largest)
    power = (torch.frexp(wide).exponent - 1).clamp(min=to.minimal) - to.mantissa
    step = torch.ldexp(torch.ones_like(wide), power)
    return (_ROUNDINGS[mode](wide / step) * step).clamp(to.lowest, to.largest)


def store(values: Tensor, to: NumberFormat, mode: str = "rint") -> Tensor:
    """Round to a format and return its numbers as they lie in memory, four bits packed along the last dimension.

    The last dimension must be a multiple of how many numbers an element holds.
    """
    rounded = round_to(values, to, mode)
    if to is HIFLOAT8:
        return encode_hifloat8(rounded)
    if to.packed == 1:
        return rounded.to(to.stored)
    return pack(_four_bits(rounded.nan_to_num(0.0), to), to)


def _four_bits(numbers: Tensor, of: NumberFormat) -> Tensor:
    """Return the four bits of each number, in int64."""
    if of.is_whole:
        return numbers.long() & 0xF
    magnitude = torch.searchsorted(_magnitudes(of).to(numbers.device), numbers.abs().contiguous())
    return magnitude + 8 * torch.signbit(numbers).long()


def _magnitudes(of: NumberFormat) -> Tensor:
    """Return the eight numbers of a float of 4 bits that are not negative, in order."""
    return torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6] if of is E2M1 else [k / 4 for k in range(8)], dtype=torch.float64)


def pack(bits: Tensor, of: NumberFormat) -> Tensor:
    """Return four bits each, (..., n), packed: (..., n / packed) in the format's dtype."""
    groups = torch.unflatten(bits, -1, (-1, of.packed))
    shifts = 4 * torch.arange(of.packed, device=bits.device)
    # the sum of eight exceeds what int32 holds, as which it is taken bit by bit
    return (groups << shifts).sum(-1).to(torch.int32).to(of.stored)


def unpack(stored: Tensor, of: NumberFormat) -> Tensor:
    """Return the four bits of each number of a packed tensor, (..., n * packed) in int64."""
    shifts = 4 * torch.arange(of.packed, device=stored.device)
    return ((stored.long().unsqueeze(-1) >> shifts) & 0xF).flatten(-2)


def numbers_in(stored: Tensor, of: NumberFormat) -> Tensor:
    """Return the numbers that a tensor of a format holds, in float64, one an element.

    A tensor of floats, in whichever precision, holds its numbers itself.
    """
    if of is HIFLOAT8 and not stored.is_floating_point():
        return decode_hifloat8(stored)
    if of.packed == 1 or stored.is_floating_point():
        return stored.double()
    bits = unpack(stored, of)
    if of.is_whole:
        return (bits - 16 * (bits >> 3)).double()
    return _magnitudes(of).to(stored.device)[bits & 7] * (1 - 2 * (bits >> 3))


# HiFloat8: 8 bits of which a prefix says how many are exponent and how many mantissa (Luo et al., 2024).
# Behind the sign the prefix is 11, 10, 01, 001 or 0001, for an exponent of 4, 3, 2, 1 or 0 bits; the rest is mantissa.
# The exponent's first bit is its sign, the others lie behind a leading one that is not stored. With the prefix 0000 the
# last three bits are an exponent, -22 to -16, of a number without mantissa; no bit at all is zero.
_INFINITY, _NAN = 0x6F, 0x80
# prefix, of how many bits -> bits of the exponent
_PREFIXES = ((0b11, 2, 4), (0b10, 2, 3), (0b01, 2, 2), (0b001, 3, 1), (0b0001, 4, 0))


def _magnitude(bits: int) -> float:
    """Return the number that 7 bits mean."""
    for prefix, length, width in _PREFIXES:
        if bits >> (7 - length) == prefix:
            mantissa_width = 7 - length - width
            fraction = (bits & ((1 << mantissa_width) - 1)) / (1 << mantissa_width)
            exponent = (bits >> mantissa_width) & ((1 << width) - 1)
            leading = (1 << width) >> 1
            size = leading | (exponent & ~leading)
            return float((1 + fraction) * 2.0 ** (-size if exponent & leading else size))
    return float(2.0 ** (bits - 23)) if bits else 0.0


@cache
def hifloat8_table() -> tuple[Tensor, Tensor]:
    """Return (numbers, bits): the finite numbers that are not negative in order, and the bits that mean each."""
    ordered = sorted((_magnitude(bits), bits) for bits in range(128) if bits != _INFINITY)
    numbers, bits = zip(*ordered, strict=True)
    return torch.tensor(numbers, dtype=torch.float64), torch.tensor(bits, dtype=torch.uint8)


def encode_hifloat8(values: Tensor) -> Tensor:
    """Return the bits, in uint8, of the numbers next to values, half away from zero and at most 32768; NaN is 0x80."""
    numbers, bits = (table.to(values.device) for table in hifloat8_table())
    middles = (numbers[1:] + numbers[:-1]) / 2
    places = torch.searchsorted(middles, values.double().abs().contiguous(), right=True)
    negative = torch.signbit(values) & (places > 0)
    return torch.where(values.isnan(), _NAN, bits[places] + negative.to(torch.uint8) * 128)


def decode_hifloat8(stored: Tensor) -> Tensor:
    """Return the numbers that bits mean, in float64; 0x80 is NaN."""
    bits = stored.view(torch.uint8).long()
    table = torch.tensor([_magnitude(code) for code in range(128)], dtype=torch.float64, device=stored.device)
    table[_INFINITY] = torch.inf
    numbers = table[bits & 0x7F] * (1 - 2 * (bits >> 7))
    return numbers.masked_fill(bits == _NAN, torch.nan)


def blocks_of_rows(rows: int, ends: Sequence[int], block: int = BLOCK) -> Tensor:
    """Return the number of each row's block where blocks begin anew in each group; -1 behind the last group.

    Two blocks share a pair of exponents, and the pairs of group g, which begins at row s, are counted from
    s // (2 * block) + g on.
    """
    places = torch.full((rows,), -1, dtype=torch.int64)
    for group, (start, end) in enumerate(pairwise([0, *ends])):
        first = 2 * (start // (2 * block) + group)
        places[start:end] = first + torch.arange(max(end - start, 0)) // block
    return places

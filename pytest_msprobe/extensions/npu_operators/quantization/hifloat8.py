"""HiFloat8: 8 bits of which a prefix says how many are exponent and how many mantissa (Luo et al., 2024).

Behind the sign the prefix is 11, 10, 01, 001 or 0001, for an exponent of 4, 3, 2, 1 or 0 bits; the rest is mantissa.
The exponent's first bit is its sign, the others lie behind a leading one that is not stored. With the prefix 0000 the
last three bits are an exponent, -22 to -16, of a number without mantissa; no bit at all is zero.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

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
    numbers, bits = (each.to(values.device) for each in hifloat8_table())
    middles = (numbers[1:] + numbers[:-1]) / 2
    places = torch.searchsorted(middles, values.double().abs().contiguous(), right=True)
    negative = torch.signbit(values) & (places > 0)
    return torch.where(values.isnan(), _NAN, bits[places] + negative.to(torch.uint8) * 128)


def decode_hifloat8(stored: Tensor) -> Tensor:
    """Return the numbers that bits mean, in float64; 0x80 is NaN."""
    bits = stored.view(torch.uint8).long()
    table = torch.tensor([_magnitude(each) for each in range(128)], dtype=torch.float64, device=stored.device)
    table[_INFINITY] = torch.inf
    numbers = table[bits & 0x7F] * (1 - 2 * (bits >> 7))
    return numbers.masked_fill(bits == _NAN, torch.nan)

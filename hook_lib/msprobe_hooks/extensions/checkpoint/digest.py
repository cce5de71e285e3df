r"""Digests of a matrix's rows and columns, which shards, fused parts and transposes share.

An element is one or more digits: the signed 16-bit words of its bytes in little-endian order (one signed byte, where it
has one). With the prime :math:`p = 2^{26} - 5`, two bases :math:`b` and, for digit :math:`d`, a factor :math:`g_d`,

    row i:     r_i = sum over j, d of  x[i, j, d] * g_d * b**j   (mod p)
    column j:  c_j = sum over i, d of  x[i, j, d] * g_d * b**i   (mod p)

for each of the bases; the two remainders are one number of 52 bits. From this follows:

* rows of a matrix, in any order, have the digests that they had;
* a shard that begins at column ``k`` adds ``b**k`` times its digests to those of the whole's rows;
* a transposed matrix has the other's columns for rows.

This is the polynomial fingerprint of Karp and Rabin (1987). Two rows of n elements that differ have equal digests for a
share of at most (n / p)**2 of all pairs of bases: 4e-9 at n = 4096, and 2**-52 where values have nothing to do with the
bases. Those were drawn once, so this is no protection against somebody who wants two models to look alike.

All sums are exact in float64: digits have at most 16 bits, factors 25 and a sign, and at most 8192 are added at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

PRIME = 2**26 - 5
# Drawn at random from those whose powers are PRIME - 1 different numbers.
BASES = (15_531_706, 31_002_453)
_DIGIT_FACTORS = (52_711_897, 24_630_391)
_BITS = 26
_MASK = np.uint64(2**_BITS - 1)
# So many products of 16 and 26 bits, signs included, have an exact sum in float64.
_MOST_TERMS = 8192

Numbers: TypeAlias = NDArray[np.uint64]


class Elements(Protocol):
    """A matrix in some framework's memory."""

    rows: int
    columns: int
    #: How many digits an element has.
    digits: int
    #: How many digits are made at once.
    block: int

    def read(self, start: int, stop: int) -> Any:
        """Return the digits of some rows as a matrix of float64, those of an element one after another."""

    def place(self, numbers: NDArray[np.float64]) -> Any:
        """Return numbers as an array that multiplies what ``read`` returns."""

    def fetch(self, arrays: Sequence[Any]) -> NDArray[np.int64]:
        """Return arrays of whole numbers one after another, on the host."""


@dataclass(frozen=True, slots=True)
class Digest:
    """Digests of rows, uint64 [rows], and of columns, uint64 [columns]; ``columns`` is None where they are unknown."""

    rows: Numbers
    columns: Numbers | None


def digest(elements: Elements) -> Digest:
    """Compute the digests of a matrix, a block of rows at a time, each read once."""
    if not (elements.rows and elements.columns):
        return Digest(np.zeros(elements.rows, np.uint64), np.zeros(elements.columns, np.uint64))
    width = elements.columns * elements.digits
    step = max(1, min(_MOST_TERMS, elements.block // width))
    factors = [elements.place(_column_factors(number, elements.columns, elements.digits)) for number in (0, 1)]
    heights = [elements.place(_powers(number, min(step, elements.rows))) for number in (0, 1)]
    rows: tuple[list[Any], list[Any]] = [], []
    columns: list[Any] = [0.0, 0.0]
    for start in range(0, elements.rows, step):
        block = elements.read(start, min(start + step, elements.rows))
        for number, base in enumerate(BASES):
            rows[number].append(_products(block, factors[number], width))
            below = heights[number][: len(block)] @ block % PRIME
            columns[number] = (columns[number] + below * pow(base, start, PRIME)) % PRIME
    ends = (
        _of_elements(elements.fetch([column_sums]), number, elements.digits)
        for number, column_sums in enumerate(columns)
    )
    return Digest(_packed(*map(elements.fetch, rows)), _packed(*ends))


def _products(block: Any, factors: Any, width: int) -> Any:
    """Return a block times factors, modulo p."""
    total: Any = 0.0
    for start in range(0, width, _MOST_TERMS):
        part = slice(start, start + _MOST_TERMS)
        total = total + block[:, part] @ factors[part] % PRIME
    return total % PRIME


def _column_factors(number: int, columns: int, digits: int) -> NDArray[np.float64]:
    powers = _powers(number, columns)
    if digits == 1:
        return powers
    exact = powers.astype(np.int64)[:, None] * _digit_factors(number, digits)
    return _centred(exact % PRIME).reshape(-1)


def _of_elements(sums: NDArray[np.int64], number: int, digits: int) -> NDArray[np.int64]:
    """Return the sums of elements of those of their digits."""
    element_sums: NDArray[np.int64] = (sums.reshape(-1, digits) * _digit_factors(number, digits) % PRIME).sum(1) % PRIME
    return element_sums


def _digit_factors(number: int, digits: int) -> NDArray[np.int64]:
    return np.array([pow(_DIGIT_FACTORS[number], digit, PRIME) for digit in range(digits)], np.int64)


def _powers(number: int, count: int) -> NDArray[np.float64]:
    # Each power of two is kept: models have few sizes.
    return _kept_powers(number, 1 << max(count - 1, 1).bit_length())[:count]


@cache
def _kept_powers(number: int, count: int) -> NDArray[np.float64]:
    powers = np.ones(count, np.int64)
    done = 1
    while done < count:
        powers[done : 2 * done] = powers[:done] * pow(BASES[number], done, PRIME) % PRIME
        done *= 2
    return _centred(powers)


def _centred(numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return remainders between -p / 2 and p / 2, which take a bit less."""
    return np.where(numbers > PRIME // 2, numbers - PRIME, numbers).astype(np.float64)


def shifted(numbers: Numbers, places: int) -> Numbers:
    """Return the digests that rows have where ``places`` columns of zeros come first."""
    if not places:
        return numbers
    return _packed(*((part * pow(base, places, PRIME)) % PRIME for part, base in _unpacked(numbers)))


def added(one: Numbers, other: Numbers) -> Numbers:
    """Return the digests of rows whose elements are in one or the other."""
    pairs = zip(_unpacked(one), _unpacked(other), strict=True)
    return _packed(*((ours + theirs) % PRIME for (ours, _), (theirs, _) in pairs))


def single(digest: Digest) -> int:
    """Return one number for a whole matrix, by which equal ones are found."""
    places = np.arange(1, len(digest.rows) + 1, dtype=np.uint64)
    mixed = (digest.rows + np.uint64(1)) * (places * np.uint64(0x9E3779B97F4A7C15) | np.uint64(1))
    return int(np.bitwise_xor.reduce(mixed ^ (mixed >> np.uint64(29)), initial=0))


def _packed(one: NDArray[np.int64], other: NDArray[np.int64]) -> Numbers:
    packed: Numbers = one.astype(np.uint64) | other.astype(np.uint64) << np.uint64(_BITS)
    return packed


def _unpacked(numbers: Numbers) -> list[tuple[NDArray[np.int64], int]]:
    low, high = (numbers & _MASK).astype(np.int64), (numbers >> np.uint64(_BITS)).astype(np.int64)
    return [(low, BASES[0]), (high, BASES[1])]

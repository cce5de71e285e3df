"""The files of one rank's weights, ``step<n>/rank<n>/``, with digests of a matrix's rows and columns.

``digests.bin`` holds uint64 in little-endian order: of each matrix of a tensor its rows' digests, then its columns'. A
tensor of three axes is a stack of matrices, one of fewer than two a column; of more, all but the first axis are one.

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

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.errors import DumpError, RecordingError
from msprobe_hooks.json_decoding import JsonError, decode_json
from msprobe_hooks.regular_files import open_regular, read_regular

INDEX, DIGESTS, TENSORS = "weights.json", "digests.bin", "tensors"
FORMAT, VERSION = "msprobe-weights", 1
_MOST_RANKS = 2**20
_STEP, _RANK = re.compile(r"step([0-9]{1,18})"), re.compile(r"rank([0-9]{1,9})")

PRIME = 2**26 - 5
# Drawn at random from those whose powers are PRIME - 1 different numbers.
BASES = (15_531_706, 31_002_453)
_DIGIT_FACTORS = (52_711_897, 24_630_391)
_BITS = 26
_MASK = np.uint64(2**_BITS - 1)
# So many products of 16 and 26 bits, signs included, have an exact sum in float64.
_MOST_TERMS = 8192

Numbers: TypeAlias = NDArray[np.uint64]


class WrittenParameter(msgspec.Struct, frozen=True, omit_defaults=True):
    """A parameter or buffer of one rank.

    ``digest`` and ``rounded`` are the places of its first digest in ``digests.bin``, of itself and rounded to
    bfloat16; -1 where there is none. A shard that knows its place has ``whole_shape`` and ``offset``; ``sharded`` is
    ``rows``, ``columns``, ``none``, or empty where the model does not say how tensor parallel ranks share it. ``chunk``
    is the number of its virtual pipeline stage on this rank.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    digest: int = -1
    rounded: int = -1
    whole_shape: tuple[int, ...] | None = None
    offset: tuple[int, ...] | None = None
    sharded: str = ""
    chunk: int = 0
    is_buffer: bool = False
    file: str = ""
    max: float | None = None
    min: float | None = None
    mean: float | None = None
    norm: float | None = None


class RankWeights(msgspec.Struct, omit_defaults=True):
    """The weights of one rank; ``layout`` has rank and size of each kind of parallelism: tp, pp, ep, etp, dp."""

    format: str
    version: int
    what: str
    framework: str
    step: int
    rank: int
    layout: dict[str, tuple[int, int]] = {}
    first_layer: int | None = None
    first_expert: int | None = None
    sizes: dict[str, int] = {}
    skipped: list[str] = []
    parameters: list[WrittenParameter] = []


class WeightsWriter:
    """Writes a rank's folder a parameter at a time; the index, which is written last, says that it is whole."""

    def __init__(self, folder: Path, head: RankWeights) -> None:
        self.folder = folder / f"step{head.step}" / f"rank{head.rank}"
        self._head = head
        self._place = 0
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / INDEX).unlink(missing_ok=True)
            self._digests: BinaryIO = (self.folder / DIGESTS).open("wb")
        except OSError as error:
            raise RecordingError(f"{self.folder}: cannot be written: {error.strerror}") from None

    def add(self, parameter: WrittenParameter, digests: Sequence[Digest], rounded: Sequence[Digest]) -> None:
        """Write a parameter's digests. Raises RecordingError."""
        places = [self._write(sequence) for sequence in (digests, rounded)]
        self._head.parameters.append(msgspec.structs.replace(parameter, digest=places[0], rounded=places[1]))

    def save(self, bits: np.ndarray[Any, Any]) -> str:
        """Write a tensor and return the name of its file. Raises RecordingError."""
        name = f"{TENSORS}/{len(self._head.parameters)}.npy"
        try:
            (self.folder / TENSORS).mkdir(exist_ok=True)
            np.save(self.folder / name, bits, allow_pickle=False)
        except OSError as error:
            raise RecordingError(f"{self.folder / name}: cannot be written: {error.strerror}") from None
        return name

    def close(self) -> None:
        """Write the index. Raises RecordingError."""
        try:
            self._digests.close()
            part = self.folder / f"{INDEX}.part"
            part.write_bytes(msgspec.json.encode(self._head))
            part.replace(self.folder / INDEX)
        except OSError as error:
            raise RecordingError(f"{self.folder / INDEX}: cannot be written: {error.strerror}") from None

    def _write(self, digests: Sequence[Digest]) -> int:
        if not digests:
            return -1
        place = self._place
        for matrix_digest in digests:
            assert matrix_digest.columns is not None
            try:
                self._digests.write(
                    matrix_digest.rows.astype("<u8").tobytes() + matrix_digest.columns.astype("<u8").tobytes()
                )
            except OSError as error:
                raise RecordingError(f"{self.folder / DIGESTS}: cannot be written: {error.strerror}") from None
            self._place += len(matrix_digest.rows) + len(matrix_digest.columns)
        return place


def is_stack(shape: Sequence[int]) -> bool:
    """Return whether a tensor is a stack of matrices, as of experts; filters of one channel are one matrix."""
    return len(shape) == 3 and shape[1] > 1


def matrix_shape(shape: Sequence[int]) -> tuple[int, int, int]:
    """Return the number of matrices of a tensor, their rows and their columns."""
    if is_stack(shape):
        return shape[0], shape[1], shape[2]
    if len(shape) < 2:
        return 1, math.prod(shape), 1
    return 1, shape[0], math.prod(shape[1:])


def rank_folders(step: Path) -> list[Path]:
    """Return the folders of ranks of one step, by number."""
    return [path for _, path in _numbered(step, _RANK)]


def step_folders(folder: Path) -> list[tuple[int, Path]]:
    """Return the steps of a folder that ``write_weights`` wrote, by number."""
    return list(_numbered(folder, _STEP))


def read_rank(folder: Path) -> RankWeights:
    """Read a rank's index. Raises DumpError."""
    path = folder / INDEX
    try:
        index = decode_json(read_regular(path), RankWeights)
    except FileNotFoundError:
        raise DumpError(f"{path}: missing, so this rank was not written whole; write it again") from None
    except (OSError, JsonError) as error:
        raise DumpError(f"{path}: not an index of weights: {error}") from None
    if index.format != FORMAT or index.version != VERSION:
        raise DumpError(f"{path}: not an index of weights of version {VERSION}")
    for kind, (rank, size) in index.layout.items():
        if not 0 <= rank < size <= _MOST_RANKS:
            raise DumpError(f"{path}: layout {kind} is {rank} of {size}, which is no rank of a size")
    if any(
        min((*parameter.shape, *(parameter.whole_shape or ()), *(parameter.offset or ())), default=0) < 0
        for parameter in index.parameters
    ):
        raise DumpError(f"{path}: a shape or an offset is negative")
    return index


def read_digests(folder: Path) -> Numbers:
    """Read all digests of a rank. Raises DumpError."""
    path = folder / DIGESTS
    try:
        with open_regular(path) as file:
            content = file.read()
    except OSError as error:
        raise DumpError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) % 8:
        raise DumpError(f"{path}: cut off; write it again")
    return np.frombuffer(content, "<u8").astype(np.uint64, copy=False)


def digests_of(numbers: Numbers, place: int, shape: Sequence[int]) -> list[Digest]:
    """Return the digests of each matrix of a tensor. Raises DumpError where the file has not so many."""
    count, rows, columns = matrix_shape(shape)
    if min(shape, default=0) < 0 or place < 0 or place + count * (rows + columns) > len(numbers):
        raise DumpError(f"{DIGESTS} has {len(numbers)} digests, not those of a tensor of shape {list(shape)}")
    digests = []
    for start in range(place, place + count * (rows + columns), rows + columns or 1):
        digests.append(Digest(numbers[start : start + rows], numbers[start + rows : start + rows + columns]))
    return digests


def _numbered(folder: Path, pattern: re.Pattern[str]) -> Iterator[tuple[int, Path]]:
    matches = ((pattern.fullmatch(path.name), path) for path in folder.iterdir() if path.is_dir())
    yield from sorted((int(match[1]), path) for match, path in matches if match)


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
    # Made at once: small arrays kept from each block would be where the next one's memory was.
    rows = [elements.place(np.zeros(elements.rows)) for _ in BASES]
    columns: list[Any] = [0.0, 0.0]
    for start in range(0, elements.rows, step):
        block = elements.read(start, min(start + step, elements.rows))
        for number, base in enumerate(BASES):
            rows[number][start : start + len(block)] = _products(block, factors[number], width)
            below = heights[number][: len(block)] @ block % PRIME
            columns[number] = (columns[number] + below * pow(base, start, PRIME)) % PRIME
    ends = (
        _of_elements(elements.fetch([column_sums]), number, elements.digits)
        for number, column_sums in enumerate(columns)
    )
    return Digest(_packed(*(elements.fetch([row_sums]) for row_sums in rows)), _packed(*ends))


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

"""The files of one rank's weights: ``step<n>/rank<n>/`` with ``weights.json``, ``digests.bin`` and tensors.

``digests.bin`` holds uint64 in little-endian order: of each matrix of a tensor its rows' digests, then its columns'. A
tensor of three axes is a stack of matrices, one of fewer than two a column; of more, all but the first axis are one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

from msprobe_hooks.errors import DumpError, RecordingError
from msprobe_hooks.extensions.checkpoint.digest import Digest, Numbers
from msprobe_hooks.json_decoding import JsonError, decode_json
from msprobe_hooks.regular_files import open_regular, read_regular

INDEX, DIGESTS, TENSORS = "weights.json", "digests.bin", "tensors"
FORMAT, VERSION = "msprobe-weights", 1
_MOST_RANKS = 2**20
_STEP, _RANK = re.compile(r"step([0-9]{1,18})"), re.compile(r"rank([0-9]{1,9})")


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

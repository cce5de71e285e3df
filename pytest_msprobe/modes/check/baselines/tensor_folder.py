"""Rows of a baseline, and the folder of its tensors: one safetensors file for each record.

A row holds the digest of its record's file, and the file's name is made of record and digest. So no name leads out of
the folder, a later run leaves the files of an earlier baseline alone, and a file of another run is not taken for one
of this baseline.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from msprobe_hooks.messages import format_size
from msprobe_hooks.regular_files import open_regular
from pytest_msprobe.engine.replay.trials.baseline_protocol import INPUT_DTYPES, SCALARS
from pytest_msprobe.results.result import DirectionResult, OutputResult
from pytest_msprobe.storage.files import LOCK_NAME, TEMPORARY, slug
from pytest_msprobe.storage.limits import StoredTensor

_KEPT = "kept"


@dataclass(frozen=True, slots=True)
class KeptTensors:
    """Outcome of keeping a record's tensors for a baseline: digest and size in bytes of their file, or the problem."""

    digest: str = ""
    size: int = 0
    problem: str = ""


def with_kept(result: DirectionResult, tensors: KeptTensors) -> DirectionResult:
    """Return a result with its kept tensors."""
    return result.with_extra(_KEPT, msgspec.to_builtins(tensors))


def kept_of(result: DirectionResult) -> KeptTensors | None:
    """Return what became of a record's tensors; None where none were to be kept."""
    plain = result.extras.get(_KEPT)
    return None if plain is None else msgspec.convert(plain, KeptTensors)


# One key, since safetensors writes several in any order, and equal tensors are to make equal files.
METADATA = "msprobe_baseline"

_DIGEST = re.compile(r"-([0-9a-f]{32})\.safetensors\Z")


class Content(msgspec.Struct):
    """A file's metadata: whose tensors it holds (``dump`` is a fingerprint), and what they are by path."""

    record: str
    dump: str
    tensors: dict[str, StoredTensor]


def tensors_folder(baseline: Path) -> Path:
    """Return the folder of a baseline's tensors: its name and ``.tensors``, next to it."""
    return baseline.with_name(f"{baseline.name}.tensors")


def file_name(record: str, digest: str) -> str:
    """Return the name of a record's file in the folder of its baseline."""
    return f"{slug(record)}-{digest}.safetensors"


def digest_of(path: Path) -> str:
    """Return the digest of a file's content."""
    digest = hashlib.blake2b(digest_size=16)
    with open_regular(path) as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


class KeptFolder:
    """Follows what the run's processes write into the folder, and leaves nothing there but that."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._digests: set[str] = set()
        self._left_out: Counter[str] = Counter()
        self._size = self._count = 0
        self._clear(LOCK_NAME, f"{TEMPORARY}*")

    def add(self, tensors: KeptTensors) -> None:
        """Count what became of one record's tensors."""
        if tensors.problem:
            self._left_out[tensors.problem] += 1
            return
        self._digests.add(tensors.digest)
        self._size += tensors.size
        self._count += 1

    def finish(self) -> None:
        """Remove what belongs to an earlier baseline, now that this one has taken its place."""
        self._clear(LOCK_NAME, f"{TEMPORARY}*")
        with contextlib.suppress(OSError):
            for path in self._folder.glob("*.safetensors"):
                match = _DIGEST.search(path.name)
                if match and match[1] not in self._digests:
                    path.unlink()

    def lines(self) -> list[str]:
        """Return where the tensors are, and which are not there for what reason."""
        first = f"msprobe baseline tensors: {self._folder} ({self._count} records, {format_size(self._size)})"
        return [first, *(f"  {count} left out (numbers only): {why}" for why, count in self._left_out.most_common())]

    def _clear(self, *patterns: str) -> None:
        with contextlib.suppress(OSError):
            for pattern in patterns:
                for path in self._folder.glob(pattern):
                    path.unlink()


Size = Annotated[int, msgspec.Meta(ge=0, le=2**48)]
Numbers = dict[str, float]
Digest = Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{32})?\Z")]


class OutputRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One output or gradient: its path, its verdict there, its dtypes and shape, and every number of it.

    ``metrics`` were counted by msprobe's bounds, ``own_metrics`` by ``own_bounds``, those of the standard that judged.
    Dtypes are empty for what is no tensor.
    """

    path: str
    outcome: str
    standard: str = ""
    reason: str = ""
    dtype: str = ""
    golden_dtype: str = ""
    shape: Annotated[tuple[Size, ...], msgspec.Meta(max_length=64)] = ()
    metrics: Numbers = {}
    own_bounds: Numbers = {}
    own_metrics: Numbers = {}

    def __post_init__(self) -> None:
        """Raise ValueError for a negative share: its square root is taken."""
        for numbers in (self.metrics, self.own_metrics):
            if numbers.get("tail_share", 0.0) < 0:
                raise ValueError(f"tail_share is {numbers['tail_share']}; it cannot be negative")


class RecordRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One record: its outcome, its outputs, and what chose their standards in addition to API and dtype.

    ``dump`` is the fingerprint of the dump, empty where a table does not say it. ``of_table`` says that the paths are
    those of a table, ``output.0`` and so on for results and gradients alike. ``tensors`` is the digest of the file with
    the record's tensors, empty where there is none.
    """

    record: str
    dump: str = ""
    outcome: str = ""
    reason: str = ""
    input_dtypes: tuple[str, ...] = ()
    scalars: bool = False
    outputs: tuple[OutputRow, ...] = ()
    of_table: bool = False
    tensors: Digest = ""

    def output(self, path: str, position: int, of_table: bool = False) -> OutputRow | None:
        """Return the row of the output at a path, the ``position``-th tensor among all; None where there is none.

        ``of_table`` says that the path is a table's; where only one of the two is, the position decides.
        """
        if self.of_table == of_table:
            return next((output for output in self.outputs if output.path == path), None)
        tensors = self.measured
        return tensors[position] if position < len(tensors) else None

    @property
    def measured(self) -> list[OutputRow]:
        """The tensors that a table has rows for: a random result has no golden one to be measured against."""
        return [
            output for output in self.outputs if output.dtype and (output.golden_dtype or output.standard != "random")
        ]


def record_row(result: DirectionResult, dump: str) -> RecordRow:
    """Return the row of what came of a record."""
    tensors = kept_of(result)
    return RecordRow(
        record=result.record,
        dump=dump,
        outcome=result.verdict.outcome,
        reason="" if result.outputs else result.verdict.reason,
        input_dtypes=tuple(result.extras.get(INPUT_DTYPES, ())),
        scalars=result.extras.get(SCALARS, False),
        outputs=tuple(map(_output_row, result.outputs)),
        tensors="" if tensors is None else tensors.digest,
    )


def _output_row(output: OutputResult) -> OutputRow:
    verdict = output.verdict
    return OutputRow(
        path=output.path,
        outcome=verdict.outcome,
        standard=verdict.standard,
        reason=verdict.reason,
        dtype=output.target_dtype,
        golden_dtype=output.golden_dtype,
        shape=output.shape,
        metrics=dict(output.measured),
        own_bounds=dict(output.own_bounds),
        own_metrics=dict(output.own_measured),
    )

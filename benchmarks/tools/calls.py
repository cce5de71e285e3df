"""Recorded calls in which faults are planted: training steps, single operators, and all of torch's operators."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

from pytest_msprobe.extensions.operators.database import find_operators
from pytest_msprobe.extensions.operators.recorder import record_operators
from tests.corpus.trials import RecordedCall, read_calls

ROOT = Path(__file__).parents[2]
SCRATCH = ROOT / ".bench" / "tools"
_FOLDERS = (ROOT / "tests" / "data" / "dumps", ROOT / "tests" / "data" / "verdict_quality")
#: The dtypes in which torch's operators are recorded, one call of each: both paths of rounding.
DTYPES = ("float32", "bfloat16")
# Of each API and dump; a second one shows hardly another fault, and takes as long again.
_PER_API = 1


def prepare() -> None:
    """Unpack and record what is not there yet: half a minute for each dtype."""
    for folder in _FOLDERS:
        copy = SCRATCH / folder.name
        if not copy.exists():
            shutil.copytree(folder, SCRATCH / "part", dirs_exist_ok=True)
            for archive in (SCRATCH / "part").rglob("dump_tensor_data.tar.xz"):
                with tarfile.open(archive) as packed:
                    packed.extractall(archive.parent, filter="data")
            (SCRATCH / "part").rename(copy)
    for dtype in DTYPES:
        folder = SCRATCH / f"operators-{dtype}"
        if not folder.exists():
            shutil.rmtree(SCRATCH / "part", ignore_errors=True)
            print(record_operators(SCRATCH / "part", find_operators([], []), dtype, "tensor", 1))
            (SCRATCH / "part").rename(folder)


def of_corpus() -> list[RecordedCall]:
    """Return the calls of recorded training steps, and of single operators and layers."""
    return read_calls(sorted(path for folder in _FOLDERS for path in _dumps(SCRATCH / folder.name)), _PER_API)


def of_operators(dtype: str) -> list[RecordedCall]:
    """Return a call of each of torch's operators in a dtype."""
    return read_calls(_dumps(SCRATCH / f"operators-{dtype}"), 1)


def _dumps(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.rglob("dump.json"))

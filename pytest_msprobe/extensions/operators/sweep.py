"""A sweep over operators, as data: its dtypes, its folders, and what of each operator was recorded.

Whatever reads it does without torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from msprobe_hooks.json_decoding import JsonError, decode_json
from pytest_msprobe.errors import CommandError, not_one_of

DTYPES = (
    *("float32", "float64", "float16", "bfloat16", "complex64", "complex128", "complex32"),
    *("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64", "bool"),
)
Task = Literal["statistics", "tensor"]
TASKS: tuple[Task, ...] = ("statistics", "tensor")
#: The number of calls of each operator by default: half a minute for a dtype.
SAMPLES = 4
#: The frameworks whose operators are recorded, by their packages; the first one by default.
FRAMEWORKS = ("torch", "mindspore")

#: The file in the folder of a dump that has a `Sweep`.
FILE = "operators.json"

_FOLDER = re.compile(rf"({'|'.join(DTYPES)})-({'|'.join(TASKS)})")


class Recorded(msgspec.Struct, omit_defaults=True):
    """Counts of one operator: its calls, recorded calls within them, and by what its framework said, samples refused.

    ``why_not`` is why it was not called at all.
    """

    calls: int = 0
    recorded: int = 0
    refused: dict[str, int] = {}
    why_not: str = ""

    @property
    def why_nothing(self) -> str:
        """Return why there is no record of it."""
        nothing = "it computes no numbers from its inputs: a view, a constant or random numbers"
        return self.why_not or "; ".join(self.refused) or (nothing if self.calls else "it has no samples")


class Sweep(msgspec.Struct):
    """Operators that were recorded in a dtype, by their names with variants; their framework's version, the task."""

    framework: str
    version: str
    dtype: str
    task: Task
    operators: dict[str, Recorded]

    def __str__(self) -> str:
        calls = sum(one.calls for one in self.operators.values())
        refused = sum(sum(one.refused.values()) for one in self.operators.values())
        called = sum(not one.why_not for one in self.operators.values())
        return f"{calls} calls of {called} operators in {self.dtype}, {refused} refused by {self.framework}"

    def left_out(self) -> Iterator[tuple[str, str]]:
        """Yield each operator of which there is no record, and why."""
        for name, counts in self.operators.items():
            if not counts.recorded:
                yield name, counts.why_nothing


def folder_name(dtype: str, task: Task) -> str:
    """Return what the folder of a dump is called."""
    return f"{dtype}-{task}"


def dtype_of_path(path: str) -> str:
    """Return the dtype that the folder of a dump names; empty where none does."""
    names = (_FOLDER.fullmatch(part) for part in path.split("/"))
    return next((match[1] for match in names if match), "")


def read_sweep(dump: Path) -> Sweep | None:
    """Return what was recorded besides a dump, None where nothing says so."""
    for folder in dump.parents[:3]:
        try:
            return decode_json((folder / FILE).read_bytes(), Sweep)
        except (OSError, JsonError):
            continue
    return None


def dtypes_of(texts: Sequence[str]) -> list[str]:
    """Return the dtypes of texts that separate them by commas. Raises CommandError for one that is unknown."""
    dtypes = [dtype for text in texts for dtype in re.split(r"[,\s]+", text.replace("torch.", "")) if dtype]
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise CommandError(f"dtype {dtype!r}: {not_one_of(dtype, DTYPES)}")
    return list(dict.fromkeys(dtypes))

"""Where converted files are, and the parts of their names.

The converter (``msaccucmp.py convert``, msprobe's ``dc`` and ``cad``) names a file
``{op_type}.{op_name}.{task}[.{stream}].{timestamp}.{input|output}.{index}[.{shape}].npy`` and puts all into one folder,
or into ``{op_name}/{timestamp}/``. Such a tree goes by the first of its files. Behind the timestamp, files of a task of
FFTS+ have three or four numbers (context, thread, device ...). A name that is too long for the system is 32 hexadecimal
digits, which ``mapping.csv`` next to it has with the name. This is what the converter's source says, which
mindstudio-probe 26.2 brings along (``msaccucmp/dump_parse``, ``cmp_utils/file_utils.py``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from msprobe_hooks.escaping import id_name
from msprobe_hooks.regular_files import read_regular

NAME_IN_WORDS: Final = "Type.Op.task.stream.time.input.index.npy"
SUFFIX: Final = ".npy"

# MindSpore's own files have a format's name behind the index, which begins with a letter.
_NAME = re.compile(
    r"([^./]+)\.([^/]+?)\.(\d+)(?:\.(\d+))?\.(\d+)((?:\.\d+){3,4})?\.(input|output)\.(\d+)(?:\.\d[\dx]*)?\.npy",
    re.ASCII,
)
_SHORTENED = re.compile(r"[0-9a-f]{32}\.npy", re.ASCII)


class KernelFile(NamedTuple):
    """The parts of a file's name: of which execution, or slice of one, of which kernel, and which of its tensors."""

    type: str
    op: str
    task: int
    stream: int
    time: int
    slice: tuple[int, ...]
    side: str
    slot: int


def parse_name(name: str) -> KernelFile | None:
    """Return the parts of the name of a converted file, None for any other name."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    kind, op, task, stream, time, numbers, side, slot = found.groups()
    slice_ = tuple(map(int, numbers[1:].split("."))) if numbers else ()
    return KernelFile(kind, id_name(op), int(task), int(stream or 0), int(time), slice_, side, int(slot))


def is_shortened(name: str) -> bool:
    """Return whether a file's name replaces one that was too long."""
    return _SHORTENED.fullmatch(name) is not None


def full_names(mapping: Path) -> dict[str, str]:
    """Return the names that were too long by those that replace them. Raises OSError where the file is missing."""
    lines = read_regular(mapping).decode("utf-8", "replace").splitlines()
    return {short: name.strip() for short, _, name in (line.partition(",") for line in lines)}


def is_converted_file(path: Path) -> bool:
    """Return by its name whether a file is a converted one."""
    return _NAME.fullmatch(path.name) is not None


def tree_of(path: Path) -> Path:
    """Return the folder of all files that a converted file belongs to."""
    return Path(_tree(str(path.parent), path.name))


def _tree(folder: str, name: str) -> str:
    # Of strings: a tree may have as many folders as executions.
    named = _NAME.fullmatch(name)
    sorted_by_op = named is not None and folder.endswith(f"{os.sep}{named[2]}{os.sep}{named[5]}")
    return os.path.dirname(os.path.dirname(folder)) if sorted_by_op else folder  # noqa: PTH120


def find_trees(folders: Iterable[tuple[str, list[str], list[str]]]) -> list[Path]:
    """Return the first file of each tree of converted files among folders as `os.walk` yields them."""
    trees: dict[str, Path] = {}
    for place, _, names in sorted(folders):
        first = min(filter(_NAME.fullmatch, names), default=None)
        if first is not None and (tree := _tree(place, first)) not in trees:
            trees[tree] = Path(place, first)
    return [trees[tree] for tree in sorted(trees)]

"""Data mode of a comparison: files of values, statistics, checksums, or the calls alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msprobe_hooks.errors import DumpError
from pytest_msprobe.modes.compare.rows import DataMode

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump

# A search for overflow writes the tensors of what it finds.
_WITH_TENSORS = ("tensor", "overflow_check", "nan_check")


def data_mode(target: Dump, golden: Dump) -> DataMode:
    """Return what two dumps can be compared by. Raises DumpError where they were recorded differently."""
    if target.task != golden.task:
        raise DumpError(
            f"{target.path}: task {target.task}, but {golden.path} has task {golden.task}; "
            "record both with the same task"
        )
    if target.task not in (*_WITH_TENSORS, "statistics", "structure"):
        raise DumpError(
            f"{target.path}: task {target.task} cannot be compared; record with task tensor, statistics or structure"
        )
    if target.level != golden.level:
        remedy = "record both at the same level"
        if "compiled" in (target.level, golden.level):
            remedy = "record the compiled run with golden_path, and compare it with that folder"
        raise DumpError(f"{target.path}: level {target.level}, but {golden.path} has level {golden.level}; {remedy}")
    if target.task == "structure":
        return "structure"
    if target.task in _WITH_TENSORS:
        return "tensor"
    target_is_summed, golden_is_summed = _has_checksums(target), _has_checksums(golden)
    if target_is_summed != golden_is_summed:
        plain, summed = (golden, target) if target_is_summed else (target, golden)
        raise DumpError(
            f"{summed.path}: recorded with checksums (summary_mode md5), {plain.path} without; record both the same way"
        )
    return "md5" if target_is_summed else "statistics"


def _has_checksums(dump: Dump) -> bool:
    return any(b'"md5"' in bytes(raw) for raw in dump.records.values())

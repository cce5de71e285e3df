"""Runs whose ranks held one model together: which dumps are one run, and that run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msprobe_hooks.dump.opening import open_dump
from msprobe_hooks.dump.paths.recording import DUMP_FILE, StepRank, find_dumps, step_rank
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.errors import DumpError
from msprobe_hooks.extensions.merged_ranks.merged_dump import (
    LayoutError,
    Model,
    ParallelLayout,
    find_models,
    merge_model,
    read_layout,
)
from msprobe_hooks.extensions.merged_ranks.unshard import Unmerged, find_part, make_whole
from pytest_msprobe.errors import OptionError
from pytest_msprobe.yaml_with_lines import read_document

_EXAMPLE = "tp=2,pp=2"


def parse_layout(flag: str, text: str, folder: Path) -> ParallelLayout:
    """Read a layout as a user gives it: ``tp=2,pp=2``, or a YAML file with the same keys, relative to a folder.

    Raises OptionError that names the option and what is wrong.
    """
    path = folder / text
    try:
        if path.is_file():
            example = "tp: 2"
            entries = read_document(path, example).items(f"not a layout; a line looks like  {example}")
            return read_layout({name: value.text("a number") for name, _, value in entries})
        words = [word.partition("=") for word in text.split(",")]
        if not all(equals for _, equals, _ in words):
            raise LayoutError(f"no such file, and not of the form {_EXAMPLE}")
        names = [name.strip() for name, _, _ in words]
        if len({*names}) < len(names):
            raise LayoutError("a name is there twice; delete one")
        return read_layout({name.strip(): value.strip() for name, _, value in words})
    except LayoutError as error:
        raise OptionError(f"{flag} {text!r}: {error}") from None


def runs_of(path: Path, layout: ParallelLayout | None) -> list[Path]:
    """Return the dumps of a file or folder that runs go by; where ranks are merged, that of the first of each run.

    Raises DumpError where there are none, or ranks do not fit the layout.
    """
    found = [path] if path.is_file() else find_dumps(path)
    if layout is None or path.is_file():
        return found
    return [model.path for model in find_models(found, layout)]


def open_run(path: Path, layout: ParallelLayout | None) -> Dump:
    """Read a run by the dump that it goes by. Raises DumpError where it cannot be used."""
    return open_dump(path) if layout is None else merge_model(_model(path, layout), layout)


def place_of_run(path: Path, layout: ParallelLayout | None) -> StepRank:
    """Return step and rank of a run, the data parallel rank where it is merged of several."""
    return step_rank(path) if layout is None else _model(path, layout).place


def ranks_of(path: Path, layout: ParallelLayout | None) -> Sequence[Path]:
    """Return all dumps that a run is read from."""
    return [path] if layout is None else _model(path, layout).paths


def _model(path: Path, layout: ParallelLayout) -> Model:
    siblings = sorted(path.parent.parent.glob(f"rank*/{DUMP_FILE}"))
    models = find_models(siblings or [path], layout)
    found = next((model for model in models if path in model.paths), None)
    if found is None:
        raise DumpError(
            f"{path}: not in a folder named rank0, rank1 ..., so its ranks cannot be merged; rename the folders"
        )
    if found.path != path:
        raise DumpError(f"{path}: one rank of a merged run; name its first rank, {found.path}, or the folder of all")
    return found


@dataclass(frozen=True, slots=True)
class Runs:
    """Two runs to be compared, and what could not be merged of the ranks of either."""

    target: Dump
    golden: Dump
    unmerged: Sequence[Unmerged] = ()


def whole_runs(target: Dump, golden: Dump, layouts: Sequence[ParallelLayout | None]) -> Runs:
    """Return two runs with whole tensors in both, where either was merged of ranks; then both have statistics alone.

    ``layouts`` are those of target and golden run. Raises RecordError where a record is malformed.
    """
    found = [None if layout else find_part(dump) for dump, layout in zip((target, golden), layouts, strict=True)]
    # Where neither run is put together, parts are compared with parts.
    parts = [part for part in found if part is not None] if None in found else []
    if not any(layouts):
        return Runs(target, golden, parts)
    target_parts, golden_parts = (1 if layout is None else layout.tp for layout in layouts)
    ours, theirs = (replace(dump, task="statistics") for dump in (target, golden))
    whole, other, unmerged = make_whole(ours, theirs, (target_parts, golden_parts))
    return Runs(whole, other, [*parts, *unmerged])

"""Layouts of runs whose ranks held one model together: the dumps of one run, and that run in one piece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msprobe_hooks.dump.recording_paths import DUMP_FILE, StepRank
from msprobe_hooks.errors import DumpError
from msprobe_hooks.extensions.merged_ranks.merged_dump import (
    LayoutError,
    Model,
    ParallelLayout,
    find_models,
    merge_model,
    read_layout,
)
from msprobe_hooks.extensions.merged_ranks.unshard import Reason, Unmerged, find_part, make_parts, make_whole
from pytest_msprobe.errors import OptionError
from pytest_msprobe.modes.compare.runs import RunNote, Runs
from pytest_msprobe.yaml_with_lines import read_document

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.modes.compare.runs import Layout

_EXAMPLE = "tp=2,pp=2"


def parse_layout(flag: str, text: str, folder: Path) -> RunLayout:
    """Read a layout as a user gives it: ``tp=2,pp=2``, or a YAML file with the same keys, relative to a folder.

    Raises OptionError that names the option and what is wrong.
    """
    path = folder / text
    try:
        if path.is_file():
            example = "tp: 2"
            entries = read_document(path, example).items(f"not a layout; a line looks like  {example}")
            return RunLayout(*astuple(read_layout({name: value.text("a number") for name, _, value in entries})))
        words = [word.partition("=") for word in text.split(",")]
        if not all(equals for _, equals, _ in words):
            raise LayoutError(f"no such file, and not of the form {_EXAMPLE}")
        names = [name.strip() for name, _, _ in words]
        if len({*names}) < len(names):
            raise LayoutError("a name is there twice; delete one")
        return RunLayout(*astuple(read_layout({name.strip(): value.strip() for name, _, value in words})))
    except LayoutError as error:
        raise OptionError(f"{flag} {text!r}: {error}") from None


@dataclass(frozen=True, slots=True)
class RunLayout(ParallelLayout):
    """A layout by which dumps of ranks are found and read as one run."""

    def __str__(self) -> str:
        return ParallelLayout.__str__(self)

    def runs_of(self, dumps: Sequence[Path]) -> list[Path]:
        """Return the dump of the first rank of each run. Raises DumpError where ranks do not fit."""
        return [model.path for model in find_models(dumps, self)]

    def open_run(self, path: Path) -> Dump:
        """Read a run by the dump of its first rank. Raises DumpError where it cannot be used."""
        return merge_model(self._model(path), self)

    def open_alone(self, path: Path) -> Dump:
        """Read a run that is compared with none: shards' statistics in the shape of one."""
        return make_parts(self.open_run(path))

    def place_of(self, path: Path) -> StepRank:
        """Return step and data parallel rank of a run."""
        return self._model(path).place

    def ranks_of(self, path: Path) -> Sequence[Path]:
        """Return all dumps that a run is read from."""
        return self._model(path).paths

    def _model(self, path: Path) -> Model:
        siblings = sorted(path.parent.parent.glob(f"rank*/{DUMP_FILE}"))
        models = find_models(siblings or [path], self)
        own = next((model for model in models if path in model.paths), None)
        if own is None:
            raise DumpError(
                f"{path}: not in a folder named rank0, rank1 ..., so its ranks cannot be merged; rename the folders"
            )
        if own.path != path:
            raise DumpError(f"{path}: one rank of a merged run; name its first rank, {own.path}, or the folder of all")
        return own


# Why values of ranks make no whole, and what became of them.
_UNMERGED: Final[Mapping[Reason, str]] = {
    "gradient": "gradients of which ranks hold parts, and which no recorded call reduces; check that the training does",
    "partial": "not compared, because ranks hold parts of a sum that is reduced later",
    "unreduced": "not compared, because ranks hold parts of a sum, and no recorded call reduces it",
    "missing": "not compared, because a part of a DTensor was not recorded",
    "averaged": "not compared, because one run has gradients after their reduction over data parallel ranks",
    "tokens": "not compared, because each rank has the mean over its own tokens, and the golden one lies between them",
    "positions": "not compared, because each rank counts its own tokens from 0",
    "scaled": "gradients are a multiple of the golden run's, as where ranks with other tokens average them, and were "
    "divided by it; specify gradients=sum if the training adds them up",
    "part": "parts of DTensors were compared as tensors; specify the layout of their run, such as tp=1 for FSDP",
    "unequal": "copies of the ranks differ; compared the one furthest from the golden run's",
}
_PLACES = {reason: place for place, reason in enumerate(_UNMERGED)}


def _note(value: Unmerged) -> RunNote:
    return RunNote(_PLACES[value.reason], _UNMERGED[value.reason], f"{value.record} {value.place}".rstrip())


def whole_runs(target: Dump, golden: Dump, layouts: Sequence[Layout | None]) -> Runs:
    """Return two runs with whole tensors in both, where either was merged of ranks; then both have statistics alone.

    ``layouts`` are those of target and golden run. Raises RecordError where a record is malformed.
    """
    parts_of_sides = [
        None if layout else find_part(dump) for dump, layout in zip((target, golden), layouts, strict=True)
    ]
    # Where neither run is put together, parts are compared with parts.
    parts = [part for part in parts_of_sides if part is not None] if None in parts_of_sides else []
    if not any(layouts):
        return Runs(target, golden, [*map(_note, parts)])
    ours, theirs = (layout if isinstance(layout, RunLayout) else RunLayout() for layout in layouts)
    scale = (
        None
        if ours.gradient_scale is None or theirs.gradient_scale is None
        else (ours.gradient_scale / theirs.gradient_scale)
    )
    dumps = [replace(dump, task="statistics") for dump in (target, golden)]
    whole, other, unmerged = make_whole(dumps[0], dumps[1], (ours.axes, theirs.axes), scale)
    return Runs(whole, other, [*map(_note, [*parts, *unmerged])])

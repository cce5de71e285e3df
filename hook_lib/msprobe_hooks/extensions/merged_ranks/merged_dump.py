"""A run that many ranks recorded, read as one of a single process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import msgspec

from msprobe_hooks.dump.call_context import KnownSurroundings, Surroundings, Table, modules_around
from msprobe_hooks.dump.json_records import encode_record
from msprobe_hooks.dump.names import direction_of, is_distributed, is_module_name, is_parameters_grad, split_module
from msprobe_hooks.dump.paths.recording import StepRank, rank_of, step_rank
from msprobe_hooks.dump.reader import Dump, read_dump
from msprobe_hooks.errors import DumpError
from msprobe_hooks.extensions.merged_ranks.outside_calls import place_outside_calls
from msprobe_hooks.extensions.merged_ranks.parallel_layout import LayoutError, ModelRanks, ParallelLayout
from msprobe_hooks.extensions.merged_ranks.pipeline_parallel import Recorded, chunk_of, micro_steps, one_process
from msprobe_hooks.extensions.merged_ranks.placements import MARK, ranks_in
from msprobe_hooks.extensions.merged_ranks.tensor_parallel import merge_shared, reductions_of


@dataclass(frozen=True, slots=True)
class Model:
    """The dumps of the ranks of one model at one step: a list for each pipeline stage, of those that share tensors.

    ``place`` is the step, and the data parallel rank in place of the rank; ``world`` are the dumps of all ranks.
    """

    place: StepRank
    stages: tuple[tuple[Path, ...], ...]
    ranks: ModelRanks
    world: Mapping[int, Path]

    @property
    def path(self) -> Path:
        """The dump of the first rank, under whose name the merged run goes."""
        return self.stages[0][0]

    @property
    def paths(self) -> list[Path]:
        """All dumps."""
        return [path for stage in self.stages for path in stage]


def find_models(paths: Sequence[Path], layout: ParallelLayout) -> list[Model]:
    """Group the dumps of ranks by step and by the model that they hold together.

    Raises DumpError where ranks are missing or do not fit the layout.
    """
    steps: dict[Path, dict[int, Path]] = {}
    for path in paths:
        rank = rank_of(path.parent)
        if rank is None or rank in steps.get(path.parent.parent, {}):
            raise DumpError(f"{path}: not in its own folder rank0, rank1 ...; put the dump of each rank into one")
        steps.setdefault(path.parent.parent, {})[rank] = path
    models = []
    for folder, ranks in steps.items():
        try:
            found = layout.models(ranks)
        except LayoutError as error:
            raise DumpError(f"{folder}: {error}") from None
        for replica, stages in enumerate(found):
            files = tuple(tuple(ranks[rank] for rank in stage) for stage in stages)
            models.append(Model(StepRank(step_rank(files[0][0]).step, replica), files, stages, ranks))
    return models


@dataclass(frozen=True)
class MergedDump(Dump):
    """A run merged of several ranks; ``path`` is that of the first. It has statistics alone."""

    known: KnownSurroundings
    place: StepRank

    @property
    def surroundings(self) -> Surroundings:
        """The call context in the files next to the ranks' dumps, under the names of the merged run."""
        return self.known


def merge_model(model: Model, layout: ParallelLayout) -> MergedDump:
    """Read the ranks of a model as one run, a stage at a time. Communication between them is left out.

    Raises DumpError where a dump cannot be used or lacks what merging needs.
    """
    records = list[Recorded]()
    first: Dump | None = None
    has_parents = has_micro_steps = False
    for stage, paths in enumerate(model.stages):
        dumps = [read_dump(path) for path in paths]
        all_ranks = _Stage(dumps, model.ranks[stage], model.world)
        first = first or replace(dumps[0], records={})
        surroundings = dumps[0].surroundings
        for dump in dumps:
            _require_mergeable(dump, first, surroundings, layout)
        has_parents = has_parents or bool(surroundings.parents.entries)
        has_micro_steps = has_micro_steps or bool(surroundings.micro_steps)
        records += _of_stage(all_ranks, surroundings, stage, layout)
    assert first is not None
    if layout.pp > 1:
        records = list(one_process(records, chunks=layout.vpp > 1))
    return MergedDump(
        **{field.name: getattr(first, field.name) for field in fields(first) if field.name not in ("task", "records")},
        task="statistics",
        records={record.name: msgspec.Raw(record.body) for record in records if record.body is not None},
        known=_surroundings(model, records, has_parents=has_parents, has_micro_steps=has_micro_steps),
        place=model.place,
    )


def _require_mergeable(dump: Dump, first: Dump, surroundings: Surroundings, layout: ParallelLayout) -> None:
    if (dump.task, dump.level) != (first.task, first.level):
        raise DumpError(
            f"{dump.path}: task {dump.task} and level {dump.level}, but {first.path} has {first.task} and "
            f"{first.level}; merge ranks of one recording"
        )
    if layout.tp > 1 and any(b'"md5"' in bytes(raw) for raw in dump.records.values()):
        raise DumpError(
            f"{dump.path}: recorded with checksums (summary_mode md5), which cannot be merged; record "
            "summary_mode statistics"
        )
    parents = surroundings.parents.undamaged("copy it again").entries
    if layout.pp > 1 and not parents and _goes_forward_again(dump):
        raise DumpError(
            f"{dump.path}: calls cannot be assigned to its several micro steps; record the stages at level L0 or mix"
        )


def _goes_forward_again(dump: Dump) -> bool:
    names = [name for name in dump.records if not is_distributed(name)]
    directions = [direction_of(name) for name in names if not dump.is_recomputed(name)]
    return "backward" in directions and "forward" in directions[directions.index("backward") :]


class _Stage:
    """The dumps of the ranks of a stage, and of those that hold parts of its DTensors."""

    def __init__(self, dumps: Sequence[Dump], ranks: Sequence[int], world: Mapping[int, Path]) -> None:
        self.dumps = dumps
        self._ranks = ranks
        self._world = world
        self._others: dict[int, Dump] = {}
        group, everyone = frozenset(ranks), frozenset(world)
        self._reductions = [reductions_of(dump, group, everyone) for dump in dumps] if len(dumps) > 1 else []
        self._places = [{name: place for place, name in enumerate(dump.records)} for dump in dumps]

    def body(self, name: str) -> bytes | None:
        """Return the body of a record for all ranks as JSON, None where there is none but a place in the tree."""
        having = [i for i, dump in enumerate(self.dumps) if name in dump.records]
        if not having:
            return None
        text = bytes(self.dumps[having[0]].records[name])
        is_placed = MARK in text
        if len(self.dumps) == 1 and not is_placed:
            return text
        bodies = {self._ranks[i]: self.dumps[i].body(name) for i in having}
        own = [*bodies]
        if is_placed:
            for rank in sorted(ranks_in(bodies[own[0]]) - {*bodies}):
                if (dump := self._dump_of(rank)) is not None and name in dump.records:
                    bodies[rank] = dump.body(name)
        reductions = [self._reductions[i] for i in having] if self._reductions else []
        places = [self._places[i][name] for i in having]
        is_gradient = is_parameters_grad(name)
        return encode_record(merge_shared(bodies, own, reductions, places, is_gradient=is_gradient))

    def _dump_of(self, rank: int) -> Dump | None:
        if rank in self._ranks or rank not in self._world:
            return None
        if rank not in self._others:
            self._others[rank] = read_dump(self._world[rank])
        return self._others[rank]


def _of_stage(ranks: _Stage, surroundings: Surroundings, stage: int, layout: ParallelLayout) -> Iterator[Recorded]:
    """Yield the records of a stage in recorded order, each merged of those of its ranks."""
    first = ranks.dumps[0]
    parents = surroundings.parents.entries
    names = [name for name in {**first.records, **parents} if not is_distributed(name)]
    tops = {name: top for name in names if (top := _top(name, parents)) is not None}
    if layout.pp > 1:
        tops |= place_outside_calls(first, names, tops)
    recomputed = {name for name in first.records if first.is_recomputed(name)}
    steps = {**micro_steps(names, tops, recomputed), **surroundings.micro_steps}
    chunk = 0
    for name in names:
        found = chunk_of(tops[name]) if layout.vpp > 1 and name in tops else None
        chunk = chunk if found is None else found
        if chunk >= layout.vpp:
            raise DumpError(
                f"{first.path}: {tops[name]} is in chunk {chunk}, but vpp={layout.vpp} has chunks 0 to "
                f"{layout.vpp - 1}; specify the vpp of the training"
            )
        stack = surroundings.stacks.entries.get(name)
        parent = parents.get(name)
        yield Recorded(
            _of_plain_class(name),
            ranks.body(name),
            chunk * layout.pp + stage,
            steps[name],
            None if parent is None else _of_plain_class(parent),
            stack,
        )


def _of_plain_class(name: str) -> str:
    """Return a record's name without what FSDP puts before the class of a module that it shards: FSDPLinear."""
    if not is_module_name(name) or ".FSDP" not in name:
        return name
    module = split_module(name)
    return str(module._replace(class_name=module.class_name.removeprefix("FSDP") or module.class_name))


def _top(name: str, parents: Mapping[str, str | None]) -> str | None:
    around = [name, *modules_around(name, parents.get)]
    return next((module for module in reversed(around) if is_module_name(module)), None)


def _surroundings(
    model: Model, records: Sequence[Recorded], *, has_parents: bool, has_micro_steps: bool
) -> KnownSurroundings:
    return KnownSurroundings(
        model.path.parent,
        Table({record.name: record.parent for record in records} if has_parents else {}),
        Table({record.name: record.stack for record in records if record.stack is not None}),
        {record.name: record.micro for record in records} if has_micro_steps else {},
    )

"""A run of many ranks, read as one of a single process: its parallel layout and its calls outside of modules."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from msprobe_hooks.dump.call_context import KnownSurroundings, Surroundings, Table, modules_around
from msprobe_hooks.dump.json_records import encode_record
from msprobe_hooks.dump.names import (
    direction_of,
    is_distributed,
    is_module_name,
    is_parameters_grad,
    split_module,
)
from msprobe_hooks.dump.reader import Dump, read_dump
from msprobe_hooks.dump.recording_paths import StepRank, rank_of, step_rank
from msprobe_hooks.errors import DumpError
from msprobe_hooks.extensions.merged_ranks.expert_parallel import number_experts
from msprobe_hooks.extensions.merged_ranks.pipeline_parallel import (
    Recorded,
    chunk_of,
    micro_steps,
    one_process,
    place_outside_calls,
)
from msprobe_hooks.extensions.merged_ranks.shard_statistics import MARK, Axes, ranks_in
from msprobe_hooks.extensions.merged_ranks.tensor_parallel import merge_shared, reductions_of
from msprobe_hooks.messages import did_you_mean

#: The ranks of one model: a list for each pipeline stage, of the ranks that share the stage's tensors.
ModelRanks: TypeAlias = list[list[int]]

#: How Megatron numbers ranks, the fastest dimension first.
DEFAULT_ORDER: Final = "tp-cp-ep-dp-pp"
_DIMENSIONS: Final = frozenset(DEFAULT_ORDER.split("-"))
_SIZES: Final = ("tp", "cp", "ep", "pp", "vpp")


class LayoutError(ValueError):
    """A layout makes no sense, or not for the ranks that were recorded; the text says why."""


@dataclass(frozen=True, slots=True)
class ParallelLayout:
    """Distribution of one model over ranks.

    ``tp`` ranks share each tensor, ``cp`` ranks each sequence, ``ep`` ranks the experts, ``pp`` stages the layers, each
    in ``vpp`` chunks; all other ranks are data parallel. Experts are spread over ranks that have other tokens: those of
    ``cp``, and of data parallel ones as many as are left. ``order`` says how ranks are numbered, the fastest dimension
    first. ``gradients`` says whether the training adds up what ranks with other tokens have (``sum``) or averages it
    (``mean``); empty where that is unknown. Raises LayoutError.
    """

    tp: int = 1
    cp: int = 1
    ep: int = 1
    pp: int = 1
    vpp: int = 1
    order: str = DEFAULT_ORDER
    gradients: str = ""

    def __post_init__(self) -> None:
        for name in _SIZES:
            if getattr(self, name) < 1:
                raise LayoutError(f"{name}={getattr(self, name)} is not a valid number of ranks; specify 1 or more")
        if self.vpp > 1 and self.pp == 1:
            raise LayoutError(f"vpp={self.vpp} needs pipeline stages, but pp is 1; specify pp as well")
        if max(self.cp, self.ep) % min(self.cp, self.ep):
            raise LayoutError(
                f"cp={self.cp} and ep={self.ep} do not fit: experts are spread over all ranks of a sequence or groups "
                "of these; specify sizes of which one divides the other"
            )
        if self.gradients not in ("", "sum", "mean"):
            raise LayoutError(f"gradients={self.gradients} is not valid; specify sum or mean")
        words = self.order.split("-")
        if not {"tp", "dp", "pp"} <= set(words) <= _DIMENSIONS or len(set(words)) < len(words):
            raise LayoutError(
                f"order={self.order} is not valid; specify tp, dp and pp once each, as in {DEFAULT_ORDER}"
            )
        if self.cp > 1 and "cp" not in words:
            raise LayoutError(f"order={self.order} has no cp, but cp is {self.cp}; specify it, as in {DEFAULT_ORDER}")

    def __str__(self) -> str:
        always = ("tp", "pp", "vpp", "order")
        shown = [
            field.name for field in fields(self) if field.name in always or getattr(self, field.name) != field.default
        ]
        return ",".join(f"{name}={getattr(self, name)}" for name in shown)

    @property
    def replicas(self) -> int:
        """Number of data parallel ranks that one model is read from, because they share its experts."""
        return max(self.ep // self.cp, 1)

    @property
    def gradient_scale(self) -> float | None:
        """By how much a rank's gradients are a multiple of those of one process; None where that is unknown."""
        tokens = math.prod(self.axes[:-1])
        return 1.0 if tokens == 1 or self.gradients == "sum" else tokens if self.gradients else None

    @property
    def axes(self) -> Axes:
        """Numbers of ranks of a stage with other sequences, other parts of a sequence, and other parts of a tensor.

        Parts of a sequence are two axes, of which the second is that of the experts where these are on fewer ranks.
        """
        inner = min(self.cp, self.ep)
        return (self.replicas, self.cp // inner, inner, self.tp)

    @property
    def expert_groups(self) -> list[int]:
        """The place of each rank of a stage among those that the experts are spread over."""
        return [place // self.tp % self.ep for place in range(math.prod(self.axes))]

    def models(self, ranks: Collection[int]) -> list[ModelRanks]:
        """Return the ranks of each model, one for each data parallel rank, in its order.

        ``ranks`` are those that were recorded. Raises LayoutError where they are not all ranks of whole models.
        """
        size = math.prod(self.axes) * self.pp
        missing = sorted({*range(max(ranks) + 1)} - {*ranks})
        if missing:
            raise LayoutError(f"rank {missing[0]} of ranks 0 to {max(ranks)} is missing; copy the dumps of all ranks")
        if len(ranks) % size:
            sizes = [f"{name}={getattr(self, name)}" for name in ("tp", "cp", "ep", "pp")]
            shown = [word for word in sizes if word[:2] in ("tp", "pp") or not word.endswith("=1")]
            raise LayoutError(
                f"{', '.join(shown[:-1])} and {shown[-1]} make {size} ranks of one model, which do not divide the "
                f"{len(ranks)} recorded ranks; specify the sizes of the training, and copy all of its ranks"
            )
        order = self.order.split("-")
        models = len(ranks) // size
        strides = _strides(order, {"tp": self.tp, "cp": self.cp, "pp": self.pp, "dp": models * self.replicas})
        # Ranks that share experts are neighbours among the data parallel ones, unless the order counts these first.
        is_far = "ep" in order and order.index("dp") < order.index("ep")
        replica_stride, model_stride = (models, 1) if is_far else (1, self.replicas)
        return [
            [
                [
                    (model * model_stride + replica * replica_stride) * strides["dp"]
                    + pp * strides["pp"]
                    + cp * strides.get("cp", 0)
                    + tp * strides["tp"]
                    for replica, cp, tp in product(range(self.replicas), range(self.cp), range(self.tp))
                ]
                for pp in range(self.pp)
            ]
            for model in range(models)
        ]


def _strides(order: list[str], sizes: Mapping[str, int]) -> dict[str, int]:
    """Return by how much a rank's number grows with its place in each dimension."""
    return {name: math.prod(sizes.get(faster, 1) for faster in order[:i]) for i, name in enumerate(order)}


def read_layout(words: Mapping[str, str]) -> ParallelLayout:
    """Return the layout that words of a user describe, as ``{"tp": "2", "pp": "4"}``. Raises LayoutError."""
    for name, text in words.items():
        if name not in (names := [field.name for field in fields(ParallelLayout)]):
            hint = did_you_mean(name, names) or f"; known: {', '.join(names)}"
            raise LayoutError(f"a layout has no {name!r}{hint}")
        if name in _SIZES and not (text.isascii() and text.isdigit() and len(text) < 7):
            raise LayoutError(f"{name}={text} is not a valid number of ranks; specify 1 or more")
    values: dict[str, Any] = {name: int(text) if name in _SIZES else text for name, text in words.items()}
    return ParallelLayout(**values)


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
            models_of_step = layout.models(ranks)
        except LayoutError as error:
            raise DumpError(f"{folder}: {error}") from None
        for replica, stages in enumerate(models_of_step):
            files = tuple(tuple(ranks[rank] for rank in stage) for stage in stages)
            models.append(Model(StepRank(step_rank(files[0][0]).step, replica), files, stages, ranks))
    return models


@dataclass(frozen=True)
class MergedDump(Dump):
    """A run merged of several ranks; ``path`` is that of the first. It has statistics alone."""

    own_surroundings: KnownSurroundings
    place: StepRank

    @property
    def surroundings(self) -> Surroundings:
        """The call context in the files next to the ranks' dumps, under the names of the merged run."""
        return self.own_surroundings


def merge_model(model: Model, layout: ParallelLayout) -> MergedDump:
    """Read the ranks of a model as one run, a stage at a time. Communication between them is left out.

    Raises DumpError where a dump cannot be used or lacks what merging needs.
    """
    records = list[Recorded]()
    first: Dump | None = None
    has_parents = has_micro_steps = False
    for stage, paths in enumerate(model.stages):
        dumps = [read_dump(path) for path in paths]
        whole, surroundings = dumps[0], dumps[0].surroundings
        first = first or replace(whole, records={})
        for dump in dumps:
            _require_mergeable(dump, first, surroundings, layout)
        if layout.ep > 1:
            dumps, whole = number_experts(dumps, layout.expert_groups)
            surroundings = whole.surroundings
        all_ranks = _Stage(dumps, whole, model.ranks[stage], model.world, layout.axes)
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
        own_surroundings=_surroundings(model, records, has_parents=has_parents, has_micro_steps=has_micro_steps),
        place=model.place,
    )


def _require_mergeable(dump: Dump, first: Dump, surroundings: Surroundings, layout: ParallelLayout) -> None:
    if (dump.task, dump.level) != (first.task, first.level):
        raise DumpError(
            f"{dump.path}: task {dump.task} and level {dump.level}, but {first.path} has {first.task} and "
            f"{first.level}; merge ranks of one recording"
        )
    if math.prod(layout.axes) > 1 and any(b'"md5"' in bytes(raw) for raw in dump.records.values()):
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

    def __init__(
        self, dumps: Sequence[Dump], whole: Dump, ranks: Sequence[int], world: Mapping[int, Path], axes: Axes
    ) -> None:
        self.dumps = dumps
        #: One with the names of all records in their order.
        self.whole = whole
        self._axes = axes
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
        return encode_record(merge_shared(bodies, own, reductions, places, axes=self._axes, is_gradient=is_gradient))

    def _dump_of(self, rank: int) -> Dump | None:
        if rank in self._ranks or rank not in self._world:
            return None
        if rank not in self._others:
            self._others[rank] = read_dump(self._world[rank])
        return self._others[rank]


def _of_stage(ranks: _Stage, surroundings: Surroundings, stage: int, layout: ParallelLayout) -> Iterator[Recorded]:
    """Yield the records of a stage in recorded order, each merged of those of its ranks."""
    first = ranks.whole
    parents = surroundings.parents.entries
    names = [name for name in {**first.records, **parents} if not is_distributed(name)]
    tops = {name: top for name in names if (top := _top(name, parents)) is not None}
    if layout.pp > 1:
        tops |= place_outside_calls(first, names, tops)
    recomputed = {name for name in first.records if first.is_recomputed(name)}
    steps = {**micro_steps(names, tops, recomputed), **surroundings.micro_steps}
    chunk = 0
    for name in names:
        chunk_of_call = chunk_of(tops[name]) if layout.vpp > 1 and name in tops else None
        chunk = chunk if chunk_of_call is None else chunk_of_call
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

"""Translation of two dumps for matching: shared names, pairs of a layer mapping, partners of values by a file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from msprobe_hooks.dump.names import is_forward, is_module_name, plain_dtype, split_called, split_module
from msprobe_hooks.dump.values import read_values
from msprobe_hooks.messages import did_you_mean
from pytest_msprobe.errors import OptionError
from pytest_msprobe.extensions.across_frameworks.cell_mapping import CellMapping, compose, read_cells
from pytest_msprobe.extensions.across_frameworks.layer_mapping import LayerMapping, match_layers, read_layers
from pytest_msprobe.extensions.across_frameworks.static_graph import CallsOfGraph, graph_as_calls, shared_call
from pytest_msprobe.extensions.across_frameworks.value_pairing import (
    ApiMapping,
    ApiPair,
    across_frameworks,
    at_precision,
    coarsest_so_far,
    drop_unrecorded,
    named_values,
    paired_gradients,
    read_apis,
    renamed_parameters,
    without_sums,
)
from pytest_msprobe.modes.compare.matching.module_calls import gradient_numbers
from pytest_msprobe.modes.compare.matching.name_translation import (
    NOTHING,
    MappedValues,
    Name,
    Partners,
    Translation,
    ValuePairing,
    record_of,
)
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, Row

if TYPE_CHECKING:
    from pathlib import Path

    from msprobe_hooks.dump.reader import Dump
    from msprobe_hooks.dump.values import PlacedValue
    from msprobe_hooks.extensions.mindspore.static_graph.reader import GraphDump
    from pytest_msprobe.extensions.across_frameworks.options import AcrossOptions
    from pytest_msprobe.modes.compare.rows import ComparedCall

# Of runs of MindSpore, one recorded by msprobe and one by this project's recorder: msprobe lists the gradients of a
# primitive from the last input to the first, computes one for an input that takes none, and gives mean and norm of
# integers in 32 bits.
_ROUNDED = ("mean_rel_diff", "norm_rel_diff")
_EXACT = ("max_diff", "min_diff")
# A few roundings to float32.
_ROUNDING = 2.0**-22


# A search among all names for each unknown one; more than this are not shown.
_MOST_SUGGESTIONS = 4
# MindTorch is PyTorch on MindSpore: its names are PyTorch's.
_FORMS = {"pytorch": "pytorch", "mindtorch": "pytorch", "mindspore": "mindspore"}

_PLAIN = re.compile(r"[A-Za-z_][\w./-]*")


@dataclass(frozen=True)
class Mappings:
    """The files that a user gave, read; one set serves all pairs of dumps."""

    apis: ApiMapping = field(default_factory=ApiMapping)
    cells: CellMapping = field(default_factory=CellMapping)
    layers: LayerMapping | None = None


@dataclass(frozen=True)
class FrameworkTranslation(Translation):
    """Translation of names between two frameworks, and by ``apis`` of values; ``reversed``: PyTorch is the target."""

    reversed: bool = False
    apis: Mapping[str, ApiPair] = field(default_factory=dict)

    def pair_of(self, target: str, golden: str) -> ApiPair | None:
        """Return what a user's file says of the values of two matched records, None where it says nothing."""
        if not self.apis:
            return None
        name, other = (golden, target) if self.reversed else (target, golden)
        pair = self.apis.get(split_called(name)[0])
        return pair if pair is not None and pair.pytorch == split_called(other)[0] else None

    def values(self, target: Dump, golden: Dump, mapped: MappedValues) -> ValuePairing:
        """Return how values of two matched calls find each other."""
        return FrameworkValues(target, golden, mapped, self)


def read_mappings(options: AcrossOptions) -> Mappings:
    """Read the files that were given. Raises OptionError that names file, line and remedy."""
    return Mappings(
        apis=read_apis(options.apis) if options.apis else ApiMapping(),
        cells=read_cells(options.cells) if options.cells else CellMapping(),
        layers=read_layers(options.layers) if options.layers else None,
    )


def composed_runs(
    target: Dump, golden: Dump, mappings: Mappings, values: Iterable[str] = ()
) -> tuple[Dump, Dump, Mapping[str, str]]:
    """Return both runs with what one framework does by several calls as one, and those calls' names in PyTorch.

    What a user's files are about stays as it is; ``values`` are the names in a data mapping.
    """
    by_form = {_FORMS.get(dump.framework): dump for dump in (target, golden)}
    if by_form.keys() != {"mindspore", "pytorch"}:
        return target, golden, {}
    apis = {split_called(name)[0] for name in by_form["pytorch"].records}
    mindspore = by_form["mindspore"]
    records = {record for name in values if (record := record_of(name, mindspore))}
    composed = compose(mindspore, apis, {*mappings.apis.pairs, *records})
    target, golden = (composed.dump if dump is mindspore else dump for dump in (target, golden))
    return target, golden, composed.names


def translation(
    target: Dump, golden: Dump, mappings: Mappings, options: AcrossOptions, names_of_composed: Mapping[str, str] = {}
) -> FrameworkTranslation:
    """Return how two dumps meet; ``names_of_composed`` are those that `composed_runs` gave.

    Raises OptionError where a mapping was asked for that these two cannot use, DumpError where a file next to a
    dump is missing or damaged.
    """
    target_form, golden_form = (_FORMS.get(dump.framework, dump.framework) for dump in (target, golden))
    names: tuple[Name, Name] = (str, str)
    if target_form != golden_form:
        shared = _Shared(mappings, names=names_of_composed).name
        names = (shared, str) if target_form == "mindspore" else (str, shared)
    else:
        if options.wants_apis:
            raise OptionError(
                f"--msprobe-mapping with api needs one run of mindspore and one of pytorch: {target.path} and "
                f"{golden.path} are of {target.framework} and {golden.framework}; leave it out"
            )
        if mappings.cells.names:
            kinds = {split_module(name).type for name in golden.records if is_module_name(name)}
            names = (_Shared(mappings, kinds.pop() if kinds else "Module").module, str)
    across = target.framework != golden.framework
    graphs = [dump.graph if isinstance(dump, CallsOfGraph) else None for dump in (target, golden)]
    if any(graphs):
        names = _calls_of_kernels(names[0], graphs[0]), _calls_of_kernels(names[1], graphs[1])
    forced: Mapping[str, str] = {}
    if mappings.layers is not None:
        forced = match_layers(target, golden, mappings.layers, *names)
    return FrameworkTranslation(
        *names,
        across=across or any(graphs),
        of_graph=any(graphs),
        reversed=target_form == "pytorch" and golden_form == "mindspore",
        forced=forced,
        export=_write_data_mapping if mappings.layers is not None else None,
        apis=mappings.apis.pairs if target_form != golden_form else {},
    )


def _calls_of_kernels(name: Name, graph: GraphDump | None) -> Name:
    def shared(record: str) -> str:
        return shared_call(name(record), graph)

    return shared


class _Shared:
    """The name that a record of MindSpore has in PyTorch."""

    def __init__(self, mappings: Mappings, kind: str = "Module", names: Mapping[str, str] = {}) -> None:
        self._mappings = mappings
        self._kind = kind
        self._names = {**names}

    def name(self, record: str) -> str:
        """Return the shared name of any record."""
        shared = self._names.get(record)
        if shared is None:
            shared = self._names[record] = self.module(self._mappings.apis.translate(record))
        return shared

    def module(self, record: str) -> str:
        """Return the shared name of a module's record; an API's is its own."""
        return self._mappings.cells.translate(record, self._kind) if is_module_name(record) else record


def without_effect(mappings: Mappings, dumps: Iterable[Dump]) -> list[str]:
    """Return, in words, the entries of the files that none of the dumps had a use for."""
    unused = list(mappings.layers.unused()) if mappings.layers is not None else []
    if not (mappings.apis.pairs or mappings.cells.names):
        return unused
    records = {name for dump in dumps for name in dump.records}
    apis = {split_called(name)[0] for name in records}
    for pair in mappings.apis.pairs.values():
        for api in (pair.mindspore, pair.pytorch):
            if api not in apis:
                suggestion = did_you_mean(api, apis) if len(unused) < _MOST_SUGGESTIONS else ""
                unused.append(f"{pair.place}: no call is named {api}{suggestion}")
    cells = mappings.cells
    return unused + [f"{cells.lines[key]}: no layer is named {key}" for key in cells.without_effect(records)]


class FrameworkNames:
    """Names of two runs of other frameworks, by the files that a user gave."""

    def __init__(self, options: AcrossOptions) -> None:
        self._options = options
        self._mappings = read_mappings(options)

    def meet(self, target: Dump, golden: Dump, values: Iterable[str]) -> tuple[Dump, Dump, Translation]:
        """Return two dumps as they are compared, and how their names meet; ``values`` are in a data mapping."""
        ours, theirs = graph_as_calls(target, golden)
        one, other, names = composed_runs(ours, theirs, self._mappings, values)
        return one, other, translation(ours, theirs, self._mappings, self._options, names)

    def unused(self, dumps: Iterable[Dump]) -> list[str]:
        """Return, in words, the entries of the files that none of the dumps had a use for."""
        return without_effect(self._mappings, dumps)


class FrameworkValues(ValuePairing):
    """Golden values of runs of two frameworks, or of two recorders of one."""

    def __init__(self, target: Dump, golden: Dump, mapped: MappedValues, translation: FrameworkTranslation) -> None:
        super().__init__(target, golden, mapped)
        self._translation = translation

    @cached_property
    def _use_different_recorders(self) -> bool:
        return use_different_recorders(self.target, self.golden)

    def of_call(self, target: str, golden: str) -> Partners:
        """Return the golden value of each value that has another place there, and golden values left out."""
        pair = self._translation.pair_of(target, golden)
        is_reordered = self._use_different_recorders and not is_forward(target)
        if pair is None and not self._translation.across and not is_reordered:
            return super().of_call(target, golden)
        target_values, golden_values = (
            read_values(self.target, target, as_passed=True),
            read_values(self.golden, golden),
        )
        named, dropped = self.mapped.of_record(target, target_values, golden_values)
        if is_reordered and not named:
            return reversed_gradients(target, target_values, golden_values)
        if not self._translation.across:
            return named, dropped
        parameters = renamed_parameters(target_values, golden_values) if is_module_name(target) else {}
        more: Partners = {}, frozenset()
        if pair is not None:
            more = named_values(
                pair,
                target_values,
                golden_values,
                is_forward=is_forward(target),
                is_reversed=self._translation.reversed,
            )
        elif not is_forward(target) and not named:
            more = paired_gradients(target_values, golden_values)
        return parameters | more[0] | named, dropped | more[1]

    def judged(self, target: str, golden: str, rows: list[Row], judge: Callable[[list[Row]], list[Row]]) -> list[Row]:
        """Return the rows of a call without what two frameworks need not share."""
        if not self._translation.across:
            if self._use_different_recorders:
                rows = [with_rounded_integers(row) for row in rows]
            return judge(rows)
        shared = [across_frameworks(row, is_forward=is_forward(target)) for row in rows]
        if self._translation.of_graph:
            shared = [drop_unrecorded(row) for row in shared]
        judged = judge(shared)
        if any(row.differs for row in judged):
            coarsest = [so_far[record] for so_far, record in zip(self._precisions, (target, golden), strict=True)]
            judged = judge([at_precision(row, *coarsest) for row in shared])
        judged = without_sums(judged, is_further_pass=self._gradients.get(target, 0) > 0)
        return [
            replace(row, target=recorded.target, golden=recorded.golden)
            for row, recorded in zip(judged, rows, strict=True)
        ]

    @cached_property
    def _gradients(self) -> Mapping[str, int]:
        return gradient_numbers(self.target)

    @cached_property
    def _precisions(self) -> tuple[dict[str, str], dict[str, str]]:
        return coarsest_so_far(self.target), coarsest_so_far(self.golden)


def _write_data_mapping(path: Path, calls: Iterable[ComparedCall]) -> None:
    """Write the golden value of each of the target's values that were compared, and N/A for those left out.

    Raises OSError where the file cannot be written.
    """
    with path.open("w", encoding="utf-8") as file:
        for call in calls:
            if call.target is None or call.golden is None:
                continue
            for row in call.rows:
                if row.target is not None:
                    golden = row.golden.name if row.golden is not None else NOTHING
                    file.write(f"{_quoted(row.target.name)}: {_quoted(golden)}\n")


def _quoted(name: str) -> str:
    # YAML reads what JSON writes; names are mostly plain enough to do without.
    return name if _PLAIN.fullmatch(name) else json.dumps(name)


def use_different_recorders(target: Dump, golden: Dump) -> bool:
    """Return whether the recorders of two runs of MindSpore differ: msprobe's does not say what requires a gradient."""
    if not target.framework == golden.framework == "mindspore":
        return False
    says, golden_says = (any(b'"requires_grad"' in bytes(raw) for raw in x.records.values()) for x in (target, golden))
    return says != golden_says


def reversed_gradients(
    record: str, target: list[PlacedValue], golden: list[PlacedValue]
) -> tuple[dict[str, PlacedValue | None], frozenset[str]]:
    """Return the golden gradient of each gradient of a backward call, and golden ones that only one recorder has."""
    ours, theirs = ([placed for placed in side if placed.group == "output"] for side in (target, golden))
    if len(ours) != len(theirs):
        return {}, frozenset()
    if record.startswith("Primitive."):
        theirs = theirs[::-1]
    pairs = [*zip(ours, theirs, strict=True)]
    named = {one.name: other if one.value.is_tensor == other.value.is_tensor else None for one, other in pairs}
    return named, frozenset(other.name for one, other in pairs if named[one.name] is None)


def with_rounded_integers(row: Row) -> Row:
    """Return a row without the error that rounding its mean and norm to float32 makes, if it is of integers."""
    if row.target is None or not plain_dtype(row.target.dtype).startswith(("int", "uint")):
        return row
    metrics = row.metrics
    is_rounding = all(metrics.get(name, 1) == 0 for name in _EXACT) and all(
        metrics.get(name, 1) <= _ROUNDING for name in _ROUNDED
    )
    return replace(row, metrics={**metrics, SCALED_ERROR: 0.0}) if is_rounding else row

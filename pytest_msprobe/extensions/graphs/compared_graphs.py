"""Two compared runs as graphs side by side, coloured by how precise each call is."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe_hooks.dump.recording_paths import by_stage
from msprobe_hooks.dump.values import PlacedValue
from pytest_msprobe.extensions.graphs.graph_folder import VisOptions, data_folder, open_graphs, places_of
from pytest_msprobe.extensions.graphs.nodes import (
    INDEX,
    build_graph,
    follow_micro_steps,
    overflow_levels,
    pair_nodes,
    require_modules,
)
from pytest_msprobe.extensions.graphs.vis_database import (
    Conversations,
    Database,
    Facts,
    Items,
    Manner,
    Picture,
    Place,
    Task,
    recorded_items,
    split,
)
from pytest_msprobe.modes.compare.opening import golden_paths, open_pairs, partner_paths
from pytest_msprobe.modes.compare.reports.table_columns import Column, columns
from pytest_msprobe.modes.compare.rows import ComparedCall, DataMode, Row
from pytest_msprobe.modes.compare.runs import open_run

if TYPE_CHECKING:
    from pytest_msprobe.modes.compare.dump_pair import DumpPair
    from pytest_msprobe.modes.compare.judging.policy import ComparePolicy
    from pytest_msprobe.modes.compare.options import CompareOptions

_TASKS: Mapping[DataMode, Task] = {"statistics": "summary", "md5": "md5", "tensor": "all", "structure": "structure"}

# How the titles begin of columns with one side's value, and not how both differ.
_OF_ONE_SIDE = ("NPU", "Bench", "BENCH", "Data_name")

# Columns of compared elements only.
_OF_ELEMENTS = ("Max ULP", "Worst index")

# What the titles of the differences mean.
_MEANINGS = {
    "Max diff": "the target's greatest element less the golden one's",
    "Min diff": "the target's least element less the golden one's",
    "Mean diff": "the target's mean less the golden one's",
    "L2norm diff": "the target's norm less the golden one's",
    "MaxRelativeErr": "the greatest relative error: of the maxima, or of the elements where these were recorded",
    "MinRelativeErr": "the relative error of the minima",
    "MeanRelativeErr": "the relative error of the means",
    "NormRelativeErr": "the relative error of the norms",
    "Cosine": "the cosine of the angle between the two tensors, 1 where they agree",
    "EucDist": "the Euclidean distance of the two tensors",
    "MaxAbsErr": "the greatest absolute error of an element",
    "One Thousandth Err Ratio": "the share of elements with a relative error below 0.001",
    "Five Thousandths Err Ratio": "the share of elements with a relative error below 0.005",
    "Scaled error": "the difference as a fraction of the tensor's own scale",
    "Max ULP": "the greatest error in units of the last place",
    "Worst index": "where the greatest error is",
    "Transformed": "what was done to a side before it was compared",
    "Result": "the verdict on this value",
    "Err_message": "why",
}


def manner_of(pair: DumpPair, *, overflow: bool, all_frames: bool) -> Manner:
    """Return how the graphs of a comparison are described."""
    meanings = {title: _MEANINGS[title] for title, _ in _columns_of(pair) if title in _MEANINGS}
    meanings |= dict.fromkeys(pair.metrics if pair.mode == "tensor" else (), "a metric of the user's own")
    return Manner(_TASKS[pair.mode], meanings, overflow, all_frames)


def _columns_of(pair: DumpPair) -> list[Column]:
    is_transformed = pair.transformations is not None
    mode = pair.mode
    table = columns(mode, pair.policy.name, with_stack=False, metrics=pair.metrics, is_transformed=is_transformed)
    left_out = {"Module"} if mode == "tensor" else {"Module", *_OF_ELEMENTS}
    return [column for column in table if not column[0].startswith(_OF_ONE_SIDE) and column[0] not in left_out]


def draw_pair(
    database: Database,
    conversations: Conversations,
    pair: DumpPair,
    place: Place,
    call_of: Callable[[str], ComparedCall | None],
) -> None:
    """Write both graphs of a pair. ``call_of`` gives what came of a record of the target, None where it was not run.

    Raises DumpError where a dump does not say in which modules its calls were made.
    """
    target_files, golden_files = pair.surroundings, pair.golden.surroundings
    target, golden = build_graph(pair.target, target_files), build_graph(pair.golden, golden_files)
    records = {match.target: match.golden for match in pair.matching.matches if match.target is not None}
    partners = pair_nodes(target, golden, records)
    follow_micro_steps(target, golden, partners)
    descriptions = _NodeDescriptions(pair, call_of, with_levels=database.manner.overflow)
    conversations.add(place, pair.target)
    database.add(
        Picture("NPU", place, target, target_files, descriptions.target, data_folder(pair.target), partners, golden)
    )
    back = {other: name for name, other in partners.items()}
    database.add(
        Picture("Bench", place, golden, golden_files, descriptions.golden, data_folder(pair.golden), back, target)
    )


def write_graphs(
    paths: Sequence[Path], options: CompareOptions, policy: ComparePolicy, vis: VisOptions, *, overflow: bool
) -> list[Path]:
    """Compare two runs, a pair of dumps at a time, and write their graphs; return the files.

    Raises DumpError or OptionError that names what does not fit, OSError where the disk refuses.
    """
    partners = partner_paths(paths, golden_paths(options), options)
    written: list[Path] = []
    for stage, of_stage in by_stage(paths).items():
        vis_of_stage = replace(vis, folder=vis.folder / stage)
        written += _write_stage(of_stage, partners, options, policy, vis_of_stage, overflow=overflow)
    return written


def _write_stage(
    paths: Sequence[Path],
    partners: Mapping[Path, Path],
    options: CompareOptions,
    policy: ComparePolicy,
    vis: VisOptions,
    *,
    overflow: bool,
) -> list[Path]:
    places = places_of(paths)
    conversations = Conversations([*places.values()])
    with ExitStack() as stack:
        database: Database | None = None
        written: list[Path] = []
        for path in paths:
            if path not in partners:
                continue
            opened = {path: open_run(path, options.target_layout)}
            pair = open_pairs(opened, replace(options, golden=partners[path]), policy).get(path)
            if pair is None:
                continue
            require_modules([pair.target, pair.golden])
            if database is None:
                manner = manner_of(pair, overflow=overflow, all_frames=vis.all_frames)
                database, written = stack.enter_context(open_graphs(vis.folder, manner, vis.form))

            def call_of(record: str, pair: DumpPair = pair) -> ComparedCall | None:
                return pair.compare(record) if record in pair.orders else None

            draw_pair(database, conversations, pair, places[path], call_of)
            # The next rank is read when this one has been let go.
            del pair, call_of
        if database is not None:
            conversations.write(database)
    return written


class _NodeDescriptions:
    """Describes the nodes of both sides."""

    def __init__(self, pair: DumpPair, call_of: Callable[[str], ComparedCall | None], *, with_levels: bool) -> None:
        self._pair = pair
        self._call_of = call_of
        self._level_of, self._golden_level_of = (
            overflow_levels(dump) if with_levels else lambda _: None for dump in (pair.target, pair.golden)
        )
        self._columns = _columns_of(pair)
        self._fields_of_equals: dict[Hashable, dict[str, str]] = {}
        # What the comparison has read of the golden run, until its own graph is written.
        self._golden: dict[str, tuple[Items, Items]] = {}

    def target(self, name: str) -> Facts:
        call = self._call_of(name)
        level = self._level_of(name)
        if call is None or not call.partner:
            return Facts(*recorded_items(self._pair.target, name), level=level)
        if call.golden is not None:
            self._golden[call.golden] = split(
                PlacedValue(group=row.group, place=row.place, value=row.golden) for row in call.rows if row.golden
            )
        inputs, outputs = split(
            PlacedValue(group=row.group, place=row.place, value=row.target) for row in call.rows if row.target
        )
        for row in call.rows:
            if row.target is not None:
                fields = (outputs if row.group == "output" else inputs)[row.target.name]
                fields |= self._differences(call, row)
        # Of calls without values nothing is known but that they have partners.
        precision = None if call.mode == "structure" else INDEX.get(call.outcome)
        return Facts(inputs, outputs, precision, level)

    def _differences(self, call: ComparedCall, row: Row) -> Mapping[str, str]:
        if row.outcome != "pass" or row.messages or row.transformed or any(row.metrics.values()):
            return {title: str(cell(call, row)) for title, cell in self._columns}
        # Most values of most runs are equal, and all that is written of these is the same.
        assert row.target is not None
        key = (row.unmeasured, *row.metrics, row.golden and row.target.requires_grad == row.golden.requires_grad)
        if key not in self._fields_of_equals:
            self._fields_of_equals[key] = {title: str(cell(call, row)) for title, cell in self._columns}
        return self._fields_of_equals[key]

    def golden(self, name: str) -> Facts:
        items = self._golden.pop(name, None) or recorded_items(self._pair.golden, name)
        return Facts(*items, level=self._golden_level_of(name))

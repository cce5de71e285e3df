"""A static graph as calls and cells, to be compared with a run of MindSpore in PyNative mode or of PyTorch.

The text of the graph says in which cell each kernel of the forward pass is and where what it takes comes from. So a
cell's record holds what kernels outside of it made and those inside take, its parameters, and what leaves it; the
gradients of its parameters are what the optimizer is given. Other kernels of the backward pass are in no record: the
compiler puts equal ones together, under the name of one cell.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Raw
from msgspec.structs import replace

from msprobe_hooks.dump.call_context import KnownSurroundings, Surroundings, Table
from msprobe_hooks.dump.json_records import Kernel, KernelDump, leaf
from msprobe_hooks.dump.names import (
    PARAMETERS_GRAD,
    ModuleName,
    is_forward,
    is_module_name,
    split_called,
    split_module,
)
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.errors import DumpError
from msprobe_hooks.extensions.mindspore.static_graph.anf_ir import Cell, Flow, Origin
from msprobe_hooks.extensions.mindspore.static_graph.reader import GraphDump
from pytest_msprobe.extensions.across_frameworks.cell_placement import Layers, Placing, call_word, calls_of, plain_word

Body: TypeAlias = dict[str, Any]

# The slots of what a kernel of the forward pass writes to: the file holds what stood there when it had run.
_WRITTEN = {"BatchNorm": (3, 4)}
# How many of its outputs mean something: what BatchNorm keeps for its gradient is any backend's own.
_MEANT = {"BatchNorm": 1}


@dataclass(frozen=True)
class CallsOfGraph(Dump):
    """A static graph as calls. ``known`` has the cell of each kernel, and the lines that it comes from."""

    graph: GraphDump
    own_surroundings: Surroundings

    @property
    def tensor_folder(self) -> Path:
        """The folder from which files are named."""
        return self.graph.tensor_folder

    @property
    def has_statistics(self) -> bool:
        """Return whether the backend took statistics, or wrote the tensors alone."""
        return self.graph.has_statistics

    @property
    def keeps_shapes(self) -> bool:
        """Never: a file may have the shape from before a reshape."""
        return False

    @property
    def surroundings(self) -> Surroundings:
        """Return what the text of the graph says."""
        return self.own_surroundings


def graph_as_calls(target: Dump, golden: Dump) -> tuple[Dump, Dump]:
    """Return two runs, of which a static graph is calls where the other one has calls.

    Raises DumpError where the two cannot be brought together.
    """
    if isinstance(target, GraphDump) and not isinstance(golden, KernelDump):
        return as_calls(target, golden), golden
    if isinstance(golden, GraphDump) and not isinstance(target, KernelDump):
        return target, as_calls(golden, target)
    return target, golden


def as_calls(graph: GraphDump, other: Dump) -> CallsOfGraph:
    """Return a graph as the calls and cells of a run like ``other``.

    Raises DumpError where the graph has no text, or the other run no modules of these names.
    """
    counts = Counter(split_module(name).path for name in other.records if is_module_name(name) and is_forward(name))
    if not counts:
        raise DumpError(
            f"{other.path}: no modules recorded, so the static graph {graph.path.parent} cannot be matched; "
            "record at level mix or L0"
        )
    flows = graph.flows
    if not flows:
        raise DumpError(
            f"{graph.path.parent}: no text of the graph, so the cells of kernels are unknown; copy "
            "rank_<N>/graphs/*.ir with the dump"
        )
    cells = [cell for flow in flows for name, cell in flow.cells.items() if name in flow.forward]
    if not any(cells):
        raise DumpError(
            f"{graph.path.parent}: the text of the graph has no scopes, so the cells of kernels are unknown; copy "
            "rank_<N>/graphs/*.ir as the run wrote them"
        )
    root = _root(cells, counts)
    if root is None:
        raise DumpError(
            f"{graph.path.parent}: no cell has the name of a module of {other.path}; compare runs of one model"
        )
    # The kernels of a layer that is called twice in a step do not say of which call they are.
    several = {tuple(path.split(".")) for path, count in counts.items() if count > 1}
    module_calls = calls_of(other)
    records: dict[str, Body] = {}
    parents: dict[str, str | None] = {}
    for flow in flows:
        calls = _Calls(graph, flow, root, several, Placing(flow, root, module_calls))
        records |= calls.records()
        parents |= calls.parents
    stacks = graph.surroundings.stacks
    return CallsOfGraph(
        path=graph.path,
        task=graph.task,
        level=other.level,
        framework=graph.framework,
        records={name: Raw(json.dumps(body).encode()) for name, body in records.items()},
        graph=graph,
        own_surroundings=KnownSurroundings(graph.tensor_folder.parent, Table(parents), stacks, {}),
    )


def shared_call(record: str, graph: GraphDump | None) -> str:
    """Return the name by which a call meets the kernel that does its work: the last word of its API, in small letters.

    ``graph`` is that whose kernel the record is, None for a call.
    """
    if is_module_name(record):
        return record
    kernel = None if graph is None else graph.kernels.get(record)
    word = call_word(record) if kernel is None else plain_word(kernel.type)
    return f"Call.{word}{split_called(record)[1]}"


def _root(cells: Sequence[Cell], names: Mapping[str, int]) -> Layers | None:
    """Return the layers around the model, which the other run's modules have not: those of loss and training step."""
    paths = {_layers(cell)[:end] for cell in cells for end in range(len(cell) + 1)}
    counts: Counter[Layers] = Counter()
    for path in paths:
        for end in range(len(path) + 1):
            counts[path[:end]] += ".".join(path[end:]) in names and len(path) > end
    best = max(counts, key=lambda root: (counts[root], -len(root)), default=())
    return best if counts[best] else None


def _layers(cell: Cell) -> Layers:
    return tuple(name for name, _ in cell)


class _Calls:
    """The kernels and cells of one graph as records."""

    def __init__(self, graph: GraphDump, flow: Flow, root: Layers, several: set[Layers], placing: Placing) -> None:
        self._graph, self._flow, self._root, self._several, self._placing = graph, flow, root, several, placing
        self._cells = {**flow.cells, **placing.found}
        #: The nodes of which nothing says the cell.
        self._astray = flow.shared - placing.found.keys()
        by_op = {kernel.op: name for name, kernel in graph.kernels.items() if kernel.number == 0}
        self._records = {
            name: by_op[op]
            for name, node in flow.nodes.items()
            if (op := node.scope.replace("/", "_")) in by_op and graph.statement(graph.kernels[by_op[op]]) is not None
        }
        self.parents: dict[str, str | None] = {}

    def records(self) -> dict[str, Body]:
        """Return the records: kernels in their order, each cell behind the last of its own."""
        nodes = {record: name for name, record in self._records.items() if name in self._flow.forward}
        order = self._order()
        last: dict[str, list[Cell]] = defaultdict(list)
        for cell, members in self._members.items():
            recorded = [self._records[name] for name in members if name in self._records]
            if recorded:
                last[max(recorded, key=order.__getitem__)].append(cell)
        bodies: dict[str, Body] = {}
        for record in sorted(nodes, key=order.__getitem__):
            node = nodes[record]
            cell = self._cells[node]
            is_call = not (self._flow.is_passed_on(node) or self._graph.kernels[record].is_mislabelled)
            if is_call and node not in self._astray and self._is_known(cell):
                bodies[record] = self._kernel(node)
                self.parents[record] = self._home(cell)
            for inner in sorted(filter(self._is_whole, last[record]), key=len, reverse=True):
                bodies[self._name(inner)] = self._cell(inner)
                self.parents[self._name(inner)] = self._home(inner[:-1])
        return bodies | self._gradients()

    def _order(self) -> dict[str, tuple[int, int]]:
        """Return the order of kernels: as they ran, those of a cell without cells of its own together at its end."""
        places = {record: place for place, record in enumerate(self._graph.kernels)}
        forward = self._flow.forward & self._records.keys()
        homes = {self._records[node]: self._cells[node] for node in forward}
        around = {cell[:end] for cell in homes.values() for end in range(len(cell))}
        ends: dict[Cell, int] = {}
        for record, cell in homes.items():
            ends[cell] = max(ends.get(cell, 0), places[record])
        return {
            record: (places[record] if cell in around else ends[cell], places[record]) for record, cell in homes.items()
        }

    @cached_property
    def _members(self) -> dict[Cell, list[str]]:
        """The nodes of each cell, those of the cells in it included."""
        members: dict[Cell, list[str]] = defaultdict(list)
        for name, cell in self._cells.items():
            if name in self._flow.forward and name not in self._astray:
                for end in range(len(self._root) + 1, len(cell) + 1):
                    if self._is_known(cell[:end]) and not self._flow.is_passed_on(name):
                        members[cell[:end]].append(name)
        return members

    def _is_known(self, cell: Cell) -> bool:
        """Return whether a cell is one of the model's, and called once."""
        layers = _layers(cell)
        inner = layers[len(self._root) :]
        is_called_once = all(inner[:end] not in self._several for end in range(1, len(inner) + 1))
        return layers[: len(self._root)] == self._root and is_called_once

    def _is_whole(self, cell: Cell) -> bool:
        """Return whether the files of a cell's kernels hold what their names say."""
        records = (self._records.get(name) for name in self._members[cell])
        return not any(self._graph.kernels[record].is_mislabelled for record in records if record)

    def _name(self, cell: Cell, rest: str = ".forward.0") -> str:
        kind = cell[-1][1] if cell else "Cell"
        return str(ModuleName("Cell", ".".join(_layers(cell)[len(self._root) :]), kind, rest))

    def _home(self, cell: Cell) -> str | None:
        """Return the cell as that in which something is called; what is called in the model itself is in none."""
        return self._name(cell) if len(cell) > len(self._root) else None

    def _kernel(self, node: str) -> Body:
        kernel = self._graph.kernels[self._records[node]]
        statement = self._flow.statements[node]
        unknown = _WRITTEN.get(kernel.type, ())
        inputs = [
            None if slot in unknown or statement.constant(slot) is not None else self._leaf(kernel, slot, shape)
            for slot, shape in enumerate(statement.inputs)
        ]
        while inputs and inputs[-1] is None:
            inputs.pop()
        outputs = [leaf(element) for element in kernel.outputs.values()][: _MEANT.get(kernel.type)]
        return {"input_args": inputs, "input_kwargs": {}, "output": outputs}

    def _cell(self, cell: Cell) -> Body:
        members = self._members[cell]
        within = {*members}
        inputs: dict[Origin, Any] = {}
        parameters: dict[str, Any] = {}
        for name, slot, origin in self._taken(members):
            kernel = self._graph.kernels[self._records[name]]
            if origin.is_weight:
                is_known = slot not in _WRITTEN.get(kernel.type, ())
                if is_known and self._cells[name] == cell:
                    parameters.setdefault(origin.name.rpartition(".")[2], self._leaf(kernel, slot, None))
            elif origin.name not in within:
                inputs.setdefault(origin, self._leaf(kernel, slot, self._flow.shape(origin)))
        outputs = [self._made(origin) for origin in self._leaving(cell)]
        # Of several the graph does not say which is which, nor what the compiler moved in from other places.
        groups = {
            group: tensors if len(tensors) == 1 else []
            for group, tensors in (("input_args", [*inputs.values()]), ("output", outputs))
        }
        return {**groups, "input_kwargs": {}, "parameters": parameters}

    def _taken(self, nodes: Sequence[str]) -> Iterator[tuple[str, int, Origin]]:
        """Yield what the kernels among nodes are given: the node, the slot, and where it comes from."""
        for name in nodes:
            if name in self._records and not self._graph.kernels[self._records[name]].is_mislabelled:
                for slot, operand in enumerate(self._flow.statements[name].operands):
                    origin = self._flow.origin(operand)
                    if origin is not None:
                        yield name, slot, origin

    def _leaving(self, cell: Cell) -> list[Origin]:
        """Return what nodes outside of a cell take of it, or else what nothing within takes."""
        within = self._members[cell]
        outside, expanded, last = dict[Origin, None](), dict[Origin, None](), ""
        somewhere = set[Origin]()
        for name in within:
            takers = self._takers[name]
            for taker, origin in takers:
                if taker in self._astray:
                    if self._placing.may_be_in(taker, cell):
                        somewhere.add(origin)
                    else:
                        outside[origin] = None
                elif self._flow.is_expanded(taker):
                    expanded[origin] = None
                elif not self._is_in(taker, cell):
                    outside[origin] = None
            if name in self._records and not any(self._is_in(taker, cell) for taker, _ in takers):
                last = name
        leaving = [*(outside or expanded)] or ([Origin(last)] if last else [])
        return leaving if somewhere <= {*leaving} else []

    def _is_in(self, name: str, cell: Cell) -> bool:
        return self._cells[name][: len(cell)] == cell

    @cached_property
    def _takers(self) -> dict[str, list[tuple[str, Origin]]]:
        """The nodes of the forward pass that take what a node makes, and which of its outputs."""
        takers: dict[str, list[tuple[str, Origin]]] = defaultdict(list)
        for name in self._flow.nodes:
            if name in self._flow.forward and (name in self._records or self._flow.is_expanded(name)):
                for operand in self._flow.statements[name].operands:
                    origin = self._flow.origin(operand)
                    if origin is not None and not origin.is_given:
                        takers[origin.name].append((name, origin))
        return takers

    def _made(self, origin: Origin) -> Any:
        kernel = self._graph.kernels.get(self._records.get(origin.name, ""))
        element = None if kernel is None or kernel.is_mislabelled else kernel.outputs.get(origin.slot)
        return None if element is None else leaf(element)

    def _leaf(self, kernel: Kernel, slot: int, shape: tuple[int, ...] | None) -> Any:
        element = kernel.inputs.get(slot)
        return None if element is None else leaf(_in_shape(element, shape))

    def _gradients(self) -> dict[str, Body]:
        """Return the gradients of parameters, as they come from the backward pass into the optimizer's kernels."""
        cells = {".".join(_layers(cell)[len(self._root) :]): cell for cell in self._members}
        bodies: dict[str, Body] = defaultdict(dict)
        for name in self._records:
            statement = self._flow.statements[name]
            first = self._flow.origin(statement.operands[0]) if statement.operands else None
            if first is None or not first.is_weight:
                continue
            for own, slot, origin in self._taken([name]):
                if self._flow.is_gradient(origin) and statement.inputs[slot] == statement.inputs[0]:
                    home, _, parameter = first.name.rpartition(".")
                    path = max(
                        (path_of_cell for path_of_cell in cells if _ends_in(home, path_of_cell)), key=len, default=None
                    )
                    if path is not None:
                        body = bodies[self._name(cells[path], f".{PARAMETERS_GRAD}.0")]
                        body[parameter] = [self._leaf(self._graph.kernels[self._records[own]], slot, None)]
        return dict(bodies)


def _ends_in(home: str, path: str) -> bool:
    return not path or home == path or home.endswith(f".{path}")


def _in_shape(element: TensorElement, shape: tuple[int, ...] | None) -> TensorElement:
    return element if shape is None else replace(element, shape=shape)

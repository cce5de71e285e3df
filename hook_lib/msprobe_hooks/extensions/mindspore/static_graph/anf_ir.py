"""MindSpore's text of a graph (``.ir``): scopes of nodes, lines of the program, and the flow of tensors.

A node is a statement ``%3(equiv_CNode) = MatMul(%1, %2) ... cnode_primal_attrs: {unique_id: "7"}``, followed by
comments: its scope, then the lines of the program from the outermost call in.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from io import TextIOWrapper
from pathlib import Path
from typing import Final, TypeAlias

from msprobe_hooks.dump.call_context import Surroundings, Table
from msprobe_hooks.errors import DumpError
from msprobe_hooks.extensions.mindspore.static_graph.ir_statement import Shape, Statement, parse_statement
from msprobe_hooks.regular_files import open_regular

_STATEMENT = re.compile(r"\s*(?P<name>%\w+)\([^()]*\) = ")
_SCOPE = re.compile(r"\s*#.*scope.*?:\s*\((?P<scope>[^()]*)\)\s*$", re.IGNORECASE)
_UNIQUE_ID = re.compile(r'(?P<forward>forward_)?unique_id: "(?P<id>\d+)"')
_GRADIENTS = "Gradients"

#: Where MindSpore puts the text of the graphs that it dumps, next to the folder of their tensors.
GRAPH_FOLDER = "graphs"

_NUMBER = re.compile(r"-op\d+$")
_LINE = re.compile(r"In file (?P<file>.*?):(?P<line>\d+)(?:~\d+)?(?:, [\d~]+)?/(?P<code>.*)", re.DOTALL)
_DEFINITION = re.compile(r"\s*(?:async )?def (?P<name>\w+)")

#: A cell as the layers from the outermost in, each with its class: ``(("net", "Mlp"), ("up", "Dense"))``.
Cell: TypeAlias = tuple[tuple[str, str], ...]

_FORWARD: Final = "Default/"
# What MindSpore makes of one operation, forward or backward, loses its cell.
_EXPANDED: Final = "Expand/"
_GRADIENT: Final = "Gradients/"
_PARAMETER: Final = "%para"
# What has the elements of its first operand, maybe in another shape.
_PASSES_ON = frozenset({"Load", "Depend", "TensorMove", "Reshape", "ExpandDims", "Squeeze", "Flatten"})


@dataclass(frozen=True, slots=True)
class IrNode:
    """One node of a graph; ``lines`` are as the text has them, the innermost last.

    ``id`` identifies a node, and ``forward_id`` the one that a node of the gradient was derived from.
    ``name`` is what other nodes call it (``%15``), ``text`` its statement.
    """

    scope: str = ""
    lines: tuple[str, ...] = ()
    id: str = ""
    forward_id: str = ""
    name: str = ""
    text: str = ""

    @property
    def statement(self) -> Statement:
        """Return what the node computes of what, read anew for each that asks."""
        return parse_statement(self.text)


@dataclass(slots=True)
class _Draft:
    statement: str
    scope: str = ""
    lines: list[str] = field(default_factory=list)

    def node(self) -> IrNode:
        ids = {match["forward"]: match["id"] for match in _UNIQUE_ID.finditer(self.statement)}
        named = _STATEMENT.match(self.statement)
        name = named["name"] if named else ""
        return IrNode(self.scope, tuple(self.lines), ids.get(None, ""), ids.get("forward_", ""), name, self.statement)


def read_ir(path: Path) -> list[IrNode]:
    """Return the nodes of a graph that name their scope, those of the gradient with the lines of their forward node.

    Raises DumpError where the file cannot be read, or ends inside of a graph.
    """
    lines = _Lines()
    try:
        with TextIOWrapper(open_regular(path), "utf-8", "replace") as file:
            nodes = [node for node in _nodes(lines.of(file)) if node.scope]
    except OSError as error:
        raise DumpError(f"{path}: cannot be read: {error.strerror}; pass the .ir file that the run wrote") from None
    if lines.are_open:
        raise DumpError(f"{path}: the text of the graph is cut off; copy the file again")
    forward = {node.id: node.lines for node in nodes if node.id and not node.scope.startswith(_GRADIENTS)}
    return [node if node.lines else replace(node, lines=forward.get(node.forward_id, ())) for node in nodes]


class _Lines:
    """The lines of a text; ``are_open`` while they are inside of a graph."""

    def __init__(self) -> None:
        self.are_open = False

    def of(self, text: Iterable[str]) -> Iterator[str]:
        """Yield the lines."""
        for line in text:
            if line.startswith(("subgraph ", "}")):
                self.are_open = line.startswith("s")
            yield line


def _nodes(text: Iterable[str]) -> Iterator[IrNode]:
    draft: _Draft | None = None
    for line in text:
        if _STATEMENT.match(line):
            if draft is not None:
                yield draft.node()
            draft = _Draft(line)
        elif draft is None:
            continue
        elif draft.scope and not line.lstrip().startswith("#"):
            yield draft.node()
            draft = None
        elif draft.scope:
            draft.lines.append(line.strip("# \n\t/"))
        elif match := _SCOPE.match(line):
            draft.scope = match["scope"]
        else:
            # Attributes of a long statement may go on in the lines before its scope.
            draft.statement += line
    if draft is not None:
        yield draft.node()


class SourceLines:
    """The nodes of graphs by the names of their kernels."""

    def __init__(self, nodes: Iterable[IrNode]) -> None:
        self._nodes: dict[str, IrNode] = {}
        self._alike: dict[str, IrNode] = {}
        for node in nodes:
            op = node.scope.replace("/", "_")
            self._nodes.setdefault(op, node)
            if node.lines:
                self._alike.setdefault(without_number(op), node)

    def of_op(self, op: str) -> IrNode | None:
        """Return the node of a kernel, None where there is none.

        MindSpore numbers some kernels anew after it has written the graph: else the first of the same scope and kind.
        """
        node = self._nodes.get(op)
        return node if node is not None and node.lines else self._alike.get(without_number(op), node)


def without_number(op: str) -> str:
    """Return the name of a kernel without its number among those of its type in one place."""
    return _NUMBER.sub("", op)


def kernel_nodes(folder: Path) -> dict[str, IrNode]:
    """Return the nodes of a process's graphs by the names of their kernels; none where a text cannot be read."""
    try:
        nodes = [node for text in graph_texts(folder) for node in read_ir(text)]
    except DumpError:
        return {}
    # The text of the graph that ran first is the one that counts.
    return {node.scope.replace("/", "_"): node for node in reversed(nodes)}


class GraphSurroundings(Surroundings):
    """The kernels in the texts of the graphs."""

    def __init__(self, folder: Path, ops: Mapping[str, str]) -> None:
        """``folder`` is that of the process, ``ops`` the op of each record."""
        super().__init__(folder)
        self._texts = graph_texts(folder)
        self._ops = ops

    @property
    def has_stacks(self) -> bool:
        """Return whether there is the text of a graph."""
        return bool(self._texts)

    @cached_property
    def stacks(self) -> Table[tuple[str, ...]]:
        """The lines that each kernel comes from, as call stacks."""
        try:
            lines = SourceLines(node for text in self._texts for node in read_ir(text))
        except DumpError:
            return Table({})
        nodes = {record: lines.of_op(op) for record, op in self._ops.items()}
        return Table({record: tuple(frames(node.lines)) for record, node in nodes.items() if node and node.lines})


def graph_texts(folder: Path) -> list[Path]:
    """Return the texts of the graphs of a process, by the folder of its dump."""
    return sorted((folder / GRAPH_FOLDER).glob("*.ir"))


def frames(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines of a graph's text, of functions and of the calls in them, as the frames of a call stack."""
    stack: list[str] = []
    function = ""
    for line in lines:
        place = _LINE.match(line)
        if place is None:
            continue
        definition = _DEFINITION.match(place["code"])
        if definition is not None:
            function = definition["name"]
        if definition is None or _has_body(place["code"]):
            stack.append(f"File {place['file']}, line {place['line']}, in {function}, \n {place['code'].strip()}")
    yield from dict.fromkeys(reversed(stack))


def _has_body(definition: str) -> bool:
    """Return whether a function's body is on the line of its definition."""
    return not definition.rstrip().endswith(":")


@dataclass(frozen=True, slots=True)
class Origin:
    """Source of a tensor: an output of a node by its name, or a parameter or input of the graph."""

    name: str
    slot: int = 0
    is_given: bool = False

    @property
    def is_weight(self) -> bool:
        """Return whether it is a parameter of a cell, whose path precedes its name; inputs have none."""
        return self.is_given and "." in self.name


class Flow:
    """The nodes of one graph."""

    def __init__(self, nodes: Iterable[IrNode]) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.statements: dict[str, Statement] = {name: node.statement for name, node in self.nodes.items()}
        self._given: dict[str, Shape | None] = {}
        for statement in self.statements.values():
            for operand, shape in zip(statement.operands, statement.inputs, strict=False):
                if operand.startswith(_PARAMETER):
                    self._given.setdefault(_name_of(operand), shape)
        self.forward = self._forward()
        self.cells = self._cells()
        #: Nodes of operators (``x + y``): the compiler makes one function of each, all have the scope of its first use.
        self.shared = self._shared()

    def origin(self, operand: str) -> Origin | None:
        """Return where an operand comes from, through what only passes it on; None for a constant."""
        slot = 0
        while operand in self.nodes:
            statement = self.statements[operand]
            if statement.type == "TupleGetItem":
                slot = statement.constant(1) or 0
            elif statement.type not in _PASSES_ON:
                return Origin(operand, slot)
            if not statement.operands:
                return None
            operand = statement.operands[0]
        return Origin(_name_of(operand), 0, is_given=True) if operand.startswith(_PARAMETER) else None

    def shape(self, origin: Origin) -> Shape | None:
        """Return the shape that a tensor had where it comes from, None where the text does not say."""
        if origin.is_given:
            return self._given.get(origin.name)
        shapes = self.statements[origin.name].outputs
        return shapes[origin.slot] if origin.slot < len(shapes) else None

    def is_gradient(self, origin: Origin) -> bool:
        """Return whether a tensor is what MindSpore derived for a gradient."""
        return not origin.is_given and self.nodes[origin.name].scope.startswith(_GRADIENT)

    def is_passed_on(self, name: str) -> bool:
        """Return whether a node computes nothing."""
        return self.statements[name].type in _PASSES_ON

    def is_expanded(self, name: str) -> bool:
        """Return whether a node is a part of an operation that MindSpore expanded, whose cell it does not say."""
        return self.nodes[name].scope.startswith(_EXPANDED)

    def _forward(self) -> set[str]:
        """Return the nodes of the forward pass: those of expanded operations as well that one of them takes."""
        nodes = {name for name, node in self.nodes.items() if node.scope.startswith(_FORWARD)}
        for name in reversed(self.nodes):
            if name in nodes:
                nodes |= {
                    operand
                    for operand in self.statements[name].operands
                    if operand in self.nodes and self.nodes[operand].scope.startswith(_EXPANDED)
                }
        return nodes

    def _shared(self) -> set[str]:
        """Return the nodes of the forward pass that say they are of one place in the program, in one cell."""
        places: dict[tuple[Cell, str, tuple[str, ...]], list[str]] = defaultdict(list)
        for name, node in self.nodes.items():
            if name in self.forward and node.lines and not (self.is_expanded(name) or self.is_passed_on(name)):
                places[self.cells[name], self.statements[name].type, node.lines].append(name)
        return {name for names in places.values() if len(names) > 1 for name in names}

    def _cells(self) -> dict[str, Cell]:
        """Return the cell of each node; of an expanded operation the innermost around all that it takes."""
        cells: dict[str, Cell] = {}
        for name, node in self.nodes.items():
            if node.scope.startswith(_EXPANDED):
                around = [cells[operand] for operand in self.statements[name].operands if operand in cells]
                cells[name] = _around(around)
            else:
                cells[name] = _cell(node.scope)
        return cells


def _name_of(operand: str) -> str:
    return operand.partition("_")[2]


def _cell(scope: str) -> Cell:
    layers = (layer.rpartition("-") for layer in scope.split("/")[1:-1])
    return tuple((name, kind) for name, dash, kind in layers if dash)


def _around(cells: list[Cell]) -> Cell:
    """Return what all of these cells are in."""
    shared: list[tuple[str, str]] = []
    for layers in zip(*cells, strict=False):
        if len({*layers}) > 1:
            break
        shared.append(layers[0])
    return tuple(shared)

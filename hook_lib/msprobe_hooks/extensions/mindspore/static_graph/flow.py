"""The text of a graph as a flow of tensors: which cell a node is in, and where what it is given comes from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from msprobe_hooks.extensions.mindspore.static_graph.anf_ir import IrNode
from msprobe_hooks.extensions.mindspore.static_graph.ir_statement import Shape, Statement

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
class Origin:
    """Where a tensor comes from: an output of a node by its name, or a parameter or input of the graph."""

    name: str
    slot: int = 0
    is_given: bool = False

    @property
    def is_weight(self) -> bool:
        """Whether it is a parameter of a cell, whose path precedes its name; inputs have none."""
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
        found = {name for name, node in self.nodes.items() if node.scope.startswith(_FORWARD)}
        for name in reversed(self.nodes):
            if name in found:
                found |= {
                    operand
                    for operand in self.statements[name].operands
                    if operand in self.nodes and self.nodes[operand].scope.startswith(_EXPANDED)
                }
        return found

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
                around = [cells[each] for each in self.statements[name].operands if each in cells]
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

"""Which lines of the program a kernel comes from: the graph's text, written in the same run, knows them by scope."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from msprobe_hooks.dump.call_context import Surroundings, Table
from msprobe_hooks.errors import DumpError
from msprobe_hooks.extensions.mindspore.static_graph.anf_ir import IrNode, read_ir

#: Where MindSpore puts the text of the graphs that it dumps, next to the folder of their tensors.
GRAPH_FOLDER = "graphs"

_NUMBER = re.compile(r"-op\d+$")
_LINE = re.compile(r"In file (?P<file>.*?):(?P<line>\d+)(?:~\d+)?(?:, [\d~]+)?/(?P<code>.*)", re.DOTALL)
_DEFINITION = re.compile(r"\s*(?:async )?def (?P<name>\w+)")


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
        """Whether there is the text of a graph."""
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
    found: list[str] = []
    function = ""
    for line in lines:
        place = _LINE.match(line)
        if place is None:
            continue
        definition = _DEFINITION.match(place["code"])
        if definition is not None:
            function = definition["name"]
        if definition is None or _has_body(place["code"]):
            found.append(f"File {place['file']}, line {place['line']}, in {function}, \n {place['code'].strip()}")
    yield from dict.fromkeys(reversed(found))


def _has_body(definition: str) -> bool:
    """Return whether a function's body is on the line of its definition."""
    return not definition.rstrip().endswith(":")

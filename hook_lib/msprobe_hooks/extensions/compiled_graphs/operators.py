"""The operators of a graph that inductor compiled: whose value each buffer is, and where the program calls them.

Inductor keeps with a buffer the node of the graph whose value it holds (``origin_node``); what is returned is known by
its place among the graph's results. Other buffers hold values inside of an operator, such as the parts of a sum.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import fx

from msprobe_hooks.extensions.compiled_graphs.generated_code import GeneratedCode

_FRAME = re.compile(r'File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>\S+)\n\s*(?P<code>[^\n]*)')


@dataclass(frozen=True, slots=True)
class CompiledOperators:
    """The nodes of one graph by the variables of its code; ``arguments`` are those that the graph is called with."""

    arguments: tuple[fx.Node, ...]
    nodes: Mapping[str, fx.Node]
    origins: Mapping[str, tuple[fx.Node, ...]]

    def node_of(self, variable: str) -> fx.Node | None:
        """Return the node whose value a variable has once it is written, None where it is none's."""
        return self.nodes.get(variable)


def compiled_operators(graph: Any, code: GeneratedCode) -> CompiledOperators:
    """Return the operators of a ``GraphLowering`` whose code was generated."""
    arguments = tuple(node for node in graph.module.graph.nodes if node.op == "placeholder")
    nodes: dict[str, fx.Node] = {}
    origins: dict[str, tuple[fx.Node, ...]] = {}
    for variable, buffer in graph.name_to_buffer.items():
        origins[variable] = tuple(getattr(buffer, "origins", ()) or ())
        node = getattr(buffer, "origin_node", None)
        if isinstance(node, fx.Node):
            nodes[variable] = node
    results = next((node.args[0] for node in graph.module.graph.nodes if node.op == "output"), ())
    if len(results) == len(code.results):
        for variable, node in zip(code.results, results, strict=True):
            if variable and isinstance(node, fx.Node) and node.op != "placeholder":
                nodes.setdefault(variable, node)
    by_name = dict(zip(code.arguments, arguments, strict=False)) if len(arguments) == len(code.arguments) else {}
    written = {node.args[0]: node for node in graph.module.graph.nodes if _is_copy(node)}
    for variable, node in by_name.items():
        nodes.pop(variable, None)
        if node in written:
            nodes[variable] = written[node]
    return CompiledOperators(arguments, nodes, origins)


def _is_copy(node: fx.Node) -> bool:
    """Return whether a node writes the new value of one of the graph's arguments."""
    return node.op == "call_function" and str(node.target).startswith("aten.copy_")


def fused(outputs: Iterable[fx.Node], computed: set[fx.Node]) -> list[fx.Node]:
    """Return the nodes that are computed for some values where others are known, in the order of the graph."""
    nodes: dict[fx.Node, None] = {}
    waiting = list(outputs)
    while waiting:
        node = waiting.pop()
        if node in nodes or node in computed or node.op != "call_function":
            continue
        nodes[node] = None
        waiting += node.all_input_nodes
    return sorted(nodes)


def source_lines(nodes: Iterable[fx.Node]) -> tuple[str, ...]:
    """Return the lines of the program in which operators are called, as a dump has the frames of a stack.

    The innermost line of each operator; operators of one line share it.
    """
    lines: dict[str, None] = {}
    for node in nodes:
        frames = list(_FRAME.finditer(node.meta.get("stack_trace") or ""))
        if frames:
            frame = frames[-1]
            text = f"File {frame['file']}, line {frame['line']}, in {frame['function']}, \n {frame['code'].strip()}"
            lines[text] = None
    return tuple(lines)

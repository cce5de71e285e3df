"""The operators of a graph whose values the buffers of its generated code hold.

Inductor keeps with a buffer the node of the graph whose value it holds (``origin_node``); what is returned is known by
its place among the graph's results, and a copy made for a kernel of a library by its place among the kernel's
arguments. Other buffers hold values inside of an operator, such as the parts of a sum.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import getitem
from typing import Any

from torch import Tensor, fx

from msprobe_hooks.extensions.compiled_graphs.generated_code import GeneratedCode, KernelCall, operator_name

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
    for variable, node in _operands(code.calls, nodes):
        if variable in graph.name_to_buffer and _has_form(graph.name_to_buffer[variable], node):
            nodes.setdefault(variable, node)
    return CompiledOperators(arguments, nodes, origins)


def _operands(calls: Sequence[KernelCall], nodes: Mapping[str, fx.Node]) -> Iterator[tuple[str, fx.Node]]:
    """Yield the buffers that are passed to library kernels, with the operands of the operators that these compute.

    A buffer is left out unless a call before has written its final value.
    """
    finished: set[str] = set()
    for call in calls:
        operators = (nodes[one.variable] for one in call.written if one.variable in nodes)
        operator = next(operators, None)
        if operator is not None and operator.target is getitem and isinstance(operator.args[0], fx.Node):
            operator = operator.args[0]
        if operator is not None and operator_name(str(operator.target)) == operator_name(call.kernel):
            for variable, node in zip(call.operands, operator.args, strict=False):
                if variable in finished and isinstance(node, fx.Node):
                    yield variable, node
        finished |= {one.variable for one in call.written}


def _has_form(buffer: Any, node: fx.Node) -> bool:
    """Return whether a buffer has the shape and dtype of a node's value."""
    value, layout = node.meta.get("val"), getattr(buffer, "layout", None)
    if not isinstance(value, Tensor) or layout is None or not hasattr(layout, "size"):
        return False
    return layout.dtype == value.dtype and list(map(str, layout.size)) == list(map(str, value.shape))


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

"""The operators of a graph whose values the buffers of its generated code hold, and what they compute uncompiled.

Inductor keeps with a buffer the node of the graph whose value it holds (``origin_node``); what is returned is known by
its place among the graph's results, and a copy made for a kernel of a library by its place among the kernel's
arguments. Other buffers hold values inside of an operator, such as the parts of a sum.

Uncompiled, PyTorch's own kernels compute an operator from values that are known, in float64 or in the graph's own
precision.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import getitem
from typing import Any

import torch
from torch import SymInt, Tensor, fx
from torch.fx.node import map_aggregate, map_arg

from msprobe_hooks.extensions.compiled_graphs.generated_code import GeneratedCode, KernelCall, operator_name

_LOW = frozenset({torch.float32, torch.float16, torch.bfloat16})
# Choices. Below the first, in units of the largest value's rounding, no one looks for a reason. The second leaves room
# for another order of summation, and is less than what a wrong kernel is off by, unless a sum cancels.
_NEAR = 16
_TIMES_AS_WRONG = 4.0
_CAST = "prims.convert_element_type"
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
    written = {_written_by(node): node for node in graph.module.graph.nodes}
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


def _written_by(node: fx.Node) -> Any:
    """Return what a node is the new value of: of a copy, or of a list that is written in place; None of another."""
    if node.op == "call_function" and str(node.target).startswith("aten.copy_"):
        return node.args[0]
    if node.target is getitem and isinstance(node.args[0], fx.Node) and _is_mutable(node.args[0].target):
        written: Any = node.args[0].args[0]
        place: Any = node.args[1]
        return written[place] if isinstance(written, (list, tuple)) else None
    return None


def copied(node: fx.Node) -> fx.Node | None:
    """Return what a copy has the value of, None where that is rounded or repeated, or the node is no copy."""
    if node.op != "call_function" or not str(node.target).startswith("aten.copy_"):
        return None
    into, source = (one if isinstance(one, fx.Node) else None for one in node.args[:2])
    ours, theirs = (None if one is None else one.meta.get("val") for one in (into, source))
    if not isinstance(ours, Tensor) or not isinstance(theirs, Tensor):
        return None
    return source if (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape) else None


def _is_mutable(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and bool(target._schema.is_mutable)


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


class DrawsRandomNumbersError(Exception):
    """A value depends on random numbers that were drawn inside of the same kernel."""


def golden_value(node: fx.Node, inputs: Mapping[fx.Node, Any], actual: Tensor) -> Tensor:
    """Return what a kernel should have written, in the shape and dtype of what it has written.

    ``actual`` itself is returned where rounding explains the difference. Floating point values are right if they are at
    most a few times as wrong as those of PyTorch's own kernels in the graph's own precision, as where a sum cancels. Of
    integers and bools, elements that float64 and the graph's own precision give differently hang on rounding. Raises as
    `uncompiled` does, and ValueError where the buffer does not have the shape of the operator's value.
    """
    return explained(
        actual,
        uncompiled(node, inputs),
        lambda: uncompiled(node, inputs, is_raised=False),
    )


def explained(actual: Tensor, value: Any, rounded: Callable[[], Any]) -> Tensor:
    """Return ``actual`` where rounding explains its difference from ``value``, else that, as ``actual`` has it.

    ``rounded`` returns what PyTorch's own kernels compute in ``actual``'s precision. Raises ValueError where the shapes
    of values do not fit.
    """
    golden = _like(value, actual)
    if not golden.numel():
        return golden
    if not actual.is_floating_point() and not actual.is_complex():
        return torch.where(golden == _like(rounded(), actual), golden, actual)
    error, scale = _largest(actual, golden), float(golden.abs().max())
    # Not finite: left to the comparison.
    is_far = scale < math.inf and error > _NEAR * torch.finfo(actual.dtype).eps * scale
    if is_far and error <= _TIMES_AS_WRONG * _largest(_like(rounded(), actual), golden):
        return actual
    return golden


def _largest(one: Tensor, other: Tensor) -> float:
    """Return the largest difference; NaN where one is."""
    return float((one.to(other.dtype) - other).abs().max())


def uncompiled(node: fx.Node, inputs: Mapping[fx.Node, Any], *, is_raised: bool = True) -> Any:
    """Return the value of a node, computed by PyTorch's own kernels from the values that are known.

    Floating point values are float64 on the way where it ``is_raised``. Raises DrawsRandomNumbersError, and whatever an
    operator raises.
    """
    values: dict[fx.Node, Any] = {}
    waiting = [node]
    while waiting:
        one = waiting[-1]
        if one in values:
            waiting.pop()
        elif one in inputs:
            values[one] = raised(inputs[one]) if is_raised else inputs[one]
            waiting.pop()
        else:
            missing = [parent for parent in one.all_input_nodes if parent not in values]
            if missing:
                waiting += missing
                continue
            values[one] = _computed(one, values, is_raised=is_raised)
            waiting.pop()
    return values[node]


def _computed(node: fx.Node, values: Mapping[fx.Node, Any], *, is_raised: bool) -> Any:
    if node.op != "call_function":
        raise NotImplementedError(f"{node.op} {node.target}")
    if is_random(node):
        raise DrawsRandomNumbersError(node.name)
    args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
    return computed(node.target, args, kwargs, is_raised=is_raised)


def computed(target: Any, args: Any, kwargs: Any, *, is_raised: bool) -> Any:
    """Return what an operator computes from values, which it leaves as they are; raised, it rounds to float64 only."""
    name = str(target)
    if name.startswith("aten.copy_"):
        return args[1].to(args[0].dtype).expand(args[0].shape)
    if is_raised and name.startswith(_CAST):
        return args[0].to(_wide(args[1]))
    if _is_mutable(target):
        args, kwargs = map_aggregate((args, kwargs), _cloned)
    if is_raised and "dtype" in kwargs:
        kwargs = {**kwargs, "dtype": _wide(kwargs["dtype"])}
    result = target(*args, **kwargs)
    # Inductor has lists written in place, as by `_foreach_add_`, and reads what was written as if it were returned.
    return args[0] if result is None else result


def is_random(node: Any) -> bool:
    """Return whether an operator draws random numbers; a node, or what has its target, args and kwargs."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        names = [argument.name for argument in target._schema.arguments]
        if "dropout_p" in names:
            place = names.index("dropout_p")
            share = node.args[place] if place < len(node.args) else node.kwargs.get("dropout_p", 0.0)
            return bool(share)
        if torch.Tag.nondeterministic_seeded in target.tags:
            return True
    return any(word in str(target) for word in ("inductor_rand", "inductor_seed"))


def raised(value: Any) -> Any:
    """Return a value in float64 where it is a tensor of less."""
    return value.to(torch.float64) if isinstance(value, Tensor) and value.dtype in _LOW else value


def _wide(dtype: Any) -> Any:
    return torch.float64 if dtype in _LOW else dtype


def _cloned(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _like(value: Any, actual: Tensor) -> Tensor:
    if not isinstance(value, Tensor):
        raise ValueError("the operator's value is no tensor")
    if value.shape != actual.shape:
        # Inductor may keep dimensions of size 1 or leave them out.
        if [size for size in value.shape if size != 1] != [size for size in actual.shape if size != 1]:
            raise ValueError(f"a buffer of shape {tuple(actual.shape)} for a value of shape {tuple(value.shape)}")
        value = value.reshape(actual.shape)
    golden: Tensor = value.to(actual.dtype)
    return golden


def bound_symbols(start_values: Mapping[fx.Node, Any]) -> dict[Any, Any]:
    """Return what the symbols of dynamic shapes are, by the shapes of the graph's arguments."""
    symbols = {}
    for node, value in start_values.items():
        traced = node.meta.get("val")
        if node.op != "placeholder":
            continue
        pairs = zip(traced.shape, value.shape, strict=False) if isinstance(traced, Tensor) else [(traced, value)]
        for size, actual in pairs:
            if isinstance(size, SymInt) and size.node.expr.is_Symbol:
                symbols[size.node.expr] = int(actual)
    return symbols

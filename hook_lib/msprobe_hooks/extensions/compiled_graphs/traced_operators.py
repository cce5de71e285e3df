"""The operators that a program calls inside of compiled code, as they were before a compiler decomposed them.

While AOTAutograd traces a program, each operator that reaches the tracer is noted with the nodes of its values.
Decompositions replace many operators by others, and passes of inductor move, join and drop nodes; what is left of a
value in the graph that is compiled is known by a number that its node carries.
"""

from __future__ import annotations

import itertools
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import SymInt, Tensor, fx
from torch.fx.node import map_aggregate
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from msprobe_hooks.dump.effects import UNDEFINED_RESULTS
from msprobe_hooks.extensions.compiled_graphs.graph_operators import (
    DrawsRandomNumbersError,
    bound_symbols,
    computed,
    copied,
    explained,
    is_random,
    raised,
    source_lines,
    uncompiled,
)
from msprobe_hooks.torch.call_mode import is_of_compiler
from msprobe_hooks.torch.recorder import TorchRecorder
from msprobe_hooks.torch.recording_mode import AtenMode

# What autograd and the compiler call as they like, and what computes nothing.
_NO_CALLS: Final = frozenset({torch.ops.aten.detach.default, torch.ops.aten.alias.default})

_DYNAMO: Final = str(Path(torch._dynamo.__file__).parent)
_NUMBER: Final = "msprobe_value"


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor that a traced program computes, by its number; ``has_grad`` where a call is given it with a gradient."""

    number: int
    has_grad: bool = False


@dataclass(frozen=True, slots=True)
class TracedOperator:
    """An operator that a program calls; ``args`` and ``kwargs`` have a `Value` in place of each tensor.

    ``name`` is that of its records at level aten, without number and direction: that of the operator that writes in
    place where the tracer made the ``target`` of it. ``results`` are the leaves of what it returns.
    """

    name: str
    target: Any
    args: Any
    kwargs: Any
    results: tuple[Any, ...]
    is_backward: bool


@dataclass(frozen=True, slots=True)
class Left:
    """Values that a forward pass leaves to its backward pass, by number, and the memory that autograd saved for that.

    Autograd gives up the memory with the pass: where any is gone, it can no longer come.
    """

    values: dict[int, Any]
    saved: tuple[StorageWeakRef, ...] = ()

    @property
    def is_in_vain(self) -> bool:
        """Return whether the backward pass cannot come any more, as after an evaluation that tracks gradients."""
        return any(one.expired() for one in self.saved)  # type: ignore[no-untyped-call]


class OperatorTrace:
    """Notes the operators of every program that AOTAutograd traces between ``begin`` and ``end``."""

    def __init__(self) -> None:
        self.programs: dict[int, list[TracedOperator]] = defaultdict(list)
        #: The programs that values are of, by the numbers of both.
        self.program_of: dict[int, int] = {}
        #: What forward passes leave to the backward passes that are still to come, by program.
        self.left: dict[int, list[Left]] = defaultdict(list)
        self._numbers = itertools.count()
        self._tracers: dict[int, Any] = {}
        self._depth = 0
        self._called: list[tuple[Any, Any, Any]] = []
        self._undo: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Note operators from here on."""
        from torch._subclasses.functional_tensor import FunctionalTensorMode
        from torch.fx.experimental import proxy_tensor

        trace, dispatch = proxy_tensor.proxy_call, FunctionalTensorMode.__torch_dispatch__

        def proxy_call(mode: Any, func: Any, pre_dispatch: bool, args: Any, kwargs: Any) -> Any:
            if self._depth:
                return trace(mode, func, pre_dispatch, args, kwargs)
            self._depth += 1
            try:
                operands = self._values((args, kwargs), mode.tracer)
                result = trace(mode, func, pre_dispatch, args, kwargs)
            finally:
                self._depth -= 1
            if result is not NotImplemented and isinstance(func, torch._ops.OpOverload):
                self._note(func, operands, result, mode.tracer)
            return result

        def torch_dispatch(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self._called.append((func, args, kwargs or {}))
            try:
                return dispatch(mode, func, types, args, kwargs)
            finally:
                self._called.pop()

        for owner, name, replacement, original in (
            (proxy_tensor, "proxy_call", proxy_call, trace),
            (FunctionalTensorMode, "__torch_dispatch__", torch_dispatch, dispatch),
        ):
            setattr(owner, name, replacement)
            self._undo.append(partial(setattr, owner, name, original))

    def end(self) -> None:
        """Note no more; what was noted is kept."""
        while self._undo:
            self._undo.pop()()
        self.left.clear()

    def _note(self, target: Any, operands: Any, result: Any, tracer: Any) -> None:
        program = id(tracer)
        # As long as it is kept, no other tracer has its id.
        self._tracers[program] = tracer
        func, (args, kwargs) = self._as_called(target, operands)
        results = tuple(self._values(one, tracer) for one in tree_leaves(result))
        if target is torch.ops.aten.copy_.default and not _numbers(results).isdisjoint(_numbers(operands)):
            # With these a traced program ends that writes to its own arguments; the program has other calls for it.
            return
        for number in _numbers((operands, results)):
            self.program_of.setdefault(number, program)
        if func is not target:
            # What writes in place returns what it was given.
            flags = [isinstance(one, Value) and one.has_grad for one in tree_leaves(args[0])]
            results = tuple(replace(one, has_grad=flag) for one, flag in zip(results, flags, strict=True))
        is_backward = torch._C._current_graph_task_id() != -1
        operator = TracedOperator(_name(func), target, args, kwargs, results, is_backward)
        self.programs[program].append(operator)

    def _as_called(self, func: Any, operands: Any) -> tuple[Any, Any]:
        """Return an operator and its arguments as the program has them, where it is one that writes in place."""
        outer, args, kwargs = self._called[-1] if self._called else (func, (), {})
        if outer is not func and not _writes_as(outer, func):
            return func, operands
        flags = iter([one.requires_grad for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)])

        def flagged(one: Any) -> Any:
            # A constant, for which the tracer has no node yet, is still a tensor, and has a flag too.
            has_grad = isinstance(one, (Value, Tensor)) and next(flags, False)
            return replace(one, has_grad=has_grad) if isinstance(one, Value) else one

        own_args, own_kwargs = map_aggregate(operands, flagged)
        left_out = {name: value for name, value in kwargs.items() if not isinstance(value, Tensor)}
        return outer, (own_args, {**left_out, **own_kwargs})

    def _values(self, tree: Any, tracer: Any) -> Any:
        """Return values with the number of each tensor that the tracer has a node for."""

        def numbered(value: Any) -> Any:
            entry = tracer.tensor_tracker.get(value) if isinstance(value, Tensor) else None
            if entry is None:
                return value
            meta = entry.proxy.node.meta
            return Value(meta.setdefault(_NUMBER, next(self._numbers)))

        return map_aggregate(tree, numbered)


class GraphOperators:
    """The operators that a program called, in one graph that was compiled of it; ``graph`` is what was lowered."""

    def __init__(self, trace: OperatorTrace, graph: fx.Graph, *, is_backward: bool) -> None:
        self.nodes: dict[int, fx.Node] = {}
        for node in graph.nodes:
            number = node.meta.get(_NUMBER)
            # Of several, the last: passes give the nodes that they put in place of one what that one carries.
            if number is not None:
                self.nodes[number] = node
        programs = [trace.program_of[number] for number in self.nodes if number in trace.program_of]
        # More than one where something was traced on the way: what inductor's patterns look for.
        self._program = max(programs, key=programs.count, default=0)
        self._left = trace.left[self._program]
        self._is_backward = is_backward
        every = trace.programs[self._program]
        self.operators = [operator for operator in every if operator.is_backward == is_backward]
        self._needed = _numbers([(one.args, one.kwargs) for one in every if one.is_backward and not is_backward])
        self.made_by: dict[int, tuple[TracedOperator, int]] = {}
        for operator in every:
            operands = _numbers((operator.args, operator.kwargs))
            for place, one in enumerate(operator.results):
                if isinstance(one, Value) and one.number not in operands:
                    self.made_by.setdefault(one.number, (operator, place))

    def leave(self, values: OperatorValues, saved: Sequence[Tensor]) -> None:
        """Keep what the operators of the backward pass need of a forward pass and its graph may not have.

        ``saved`` is what autograd saves for it; what earlier passes left is dropped where they have given up theirs.
        """
        self._left[:] = [one for one in self._left if not one.is_in_vain]
        here = {number for operator in self.operators for number in map(_number, operator.results)} | {*self.nodes}
        left: dict[int, Any] = {}
        for number in self._needed & here:
            # Without it, the operators that need it are not judged, and counted.
            with suppress(Exception):
                left[number] = values.compiled(Value(number))
        if left:
            references: Any = map(StorageWeakRef, (one.untyped_storage() for one in saved))
            self._left.append(Left(left, tuple(references)))

    def take_left(self, start_values: Mapping[fx.Node, Any]) -> dict[int, Any]:
        """Return what the forward pass has left whose backward pass this is: the one with the values that both have."""
        if not self._is_backward:
            return {}
        shared = {number: start_values[node] for number, node in self.nodes.items() if node in start_values}
        for place, left in enumerate(self._left):
            if all(_is_same(shared[number], left.values[number]) for number in shared.keys() & left.values.keys()):
                return self._left.pop(place).values
        return {}

    def lines_of(self, operator: TracedOperator) -> tuple[str, ...]:
        """Return the lines of the program that call an operator."""
        numbers = [one.number for one in operator.results if isinstance(one, Value)]
        return source_lines(self.nodes[number] for number in numbers if number in self.nodes)


class OperatorValues:
    """The values of the operators of one run of a graph; it starts from what its kernels wrote and its arguments.

    Of each value there are two: what compiled code computes, which is what a kernel wrote or what the decomposed
    operators come to from there, and what the operators come to as the program calls them.
    """

    def __init__(self, operators: GraphOperators, start_values: Mapping[fx.Node, Any], left: Mapping[int, Any]) -> None:
        self._operators = operators
        # With an optimizer's parameters, kernels write into arguments: the graph ends with copies into them.
        sources = {source: value for node, value in start_values.items() if (source := copied(node)) is not None}
        self._starts = {**sources, **start_values}
        self._left = left
        self._nodes = dict(self._starts)
        self._compiled: dict[int, Any] = {}
        self._called: dict[tuple[int, bool], list[Any]] = {}
        self._golden: dict[int, Any] = {}
        self._symbols = bound_symbols(start_values)

    def compiled(self, tree: Any) -> Any:
        """Return arguments or results as compiled code has them. Raises what an operator raises."""
        return self._filled(tree, self._compiled_value)

    def both_sides(self, operator: TracedOperator) -> list[tuple[Any, Any, Any]]:
        """Return arguments, keyword arguments and results as compiled code has them, and without the compiler."""
        operands = operator.args, operator.kwargs
        results = self.compiled(operator.results), self.golden_results(operator)
        return [
            (*_as_given(operands, self._filled(operands, value)), _as_given(operator.results, own))
            for value, own in zip((self._compiled_value, self._golden_value), results, strict=True)
        ]

    def golden_results(self, operator: TracedOperator) -> tuple[Any, ...]:
        """Return what an operator comes to uncompiled, or what compiled code has where rounding explains it."""
        return tuple(
            self._explained(operator, place, one.number) if isinstance(one, Value) else self.compiled(one)
            for place, one in enumerate(operator.results)
        )

    def _compiled_value(self, number: int) -> Any:
        if number not in self._compiled:
            node = self._operators.nodes.get(number)
            if node is not None:
                if node not in self._nodes:
                    self._nodes[node] = uncompiled(node, self._nodes, is_raised=False)
                self._compiled[number] = self._nodes[node]
            elif number in self._left:
                self._compiled[number] = self._left[number]
            elif number not in self._operators.made_by:
                raise LookupError("it needs a value that is not in this graph")
            else:
                # A pass of inductor has left no node of it.
                operator, _ = self._operators.made_by[number]
                results = self._computed(operator, self._compiled_value, is_raised=False)
                for one, value in zip(operator.results, results, strict=True):
                    if isinstance(one, Value):
                        self._compiled.setdefault(one.number, value)
        return self._compiled[number]

    def _golden_value(self, number: int) -> Any:
        if number not in self._golden:
            maker = self._made(number)
            self._golden[number] = self._compiled_value(number) if maker is None else self._explained(*maker, number)
        return self._golden[number]

    def _made(self, number: int) -> tuple[TracedOperator, int] | None:
        """Return the operator that a value is computed by, None where it needs none."""
        is_known = self._operators.nodes.get(number) in self._starts or number in self._left
        return None if is_known else self._operators.made_by.get(number)

    def _explained(self, operator: TracedOperator, place: int, number: int) -> Any:
        actual = self._compiled_value(number)
        return explained(
            actual,
            self._called_results(operator, is_raised=True)[place],
            lambda: self._called_results(operator, is_raised=False)[place],
        )

    def _called_results(self, operator: TracedOperator, *, is_raised: bool) -> list[Any]:
        key = id(operator), is_raised
        if key not in self._called:

            def value(number: int) -> Any:
                maker = self._made(number)
                if maker is None:
                    start = self._compiled_value(number)
                    return raised(start) if is_raised else start
                return self._called_results(maker[0], is_raised=is_raised)[maker[1]]

            self._called[key] = self._computed(operator, value, is_raised=is_raised)
        return self._called[key]

    def _computed(self, operator: TracedOperator, value: Callable[[int], Any], *, is_raised: bool) -> list[Any]:
        if is_random(operator):
            raise DrawsRandomNumbersError(operator.name)
        args, kwargs = self._filled((operator.args, operator.kwargs), value)
        return tree_leaves(computed(operator.target, args, kwargs, is_raised=is_raised))

    def _filled(self, tree: Any, value: Callable[[int], Any]) -> Any:
        def filled(one: Any) -> Any:
            if isinstance(one, Value):
                return value(one.number)
            if isinstance(one, SymInt):
                return int(one.node.shape_env.replace(one.node.expr).subs(self._symbols))
            return one

        return map_aggregate(tree, filled)


def _as_given(tree: Any, values: Any) -> Any:
    """Return the values of arguments, of which those require a gradient that do where the program makes the call."""
    places, leaves = tree_flatten(values)[1], zip(tree_leaves(tree), tree_leaves(values), strict=True)
    own = [
        value.detach().requires_grad_() if isinstance(one, Value) and one.has_grad else value for one, value in leaves
    ]
    return tree_unflatten(own, places)


class OuterMode(AtenMode):  # type: ignore[no-untyped-call]
    """Records the operators that are called around compiled code."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return True: what is compiled stays compiled."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record an operator and run it, unless compiled code, or what calls that, makes the call."""
        frame = sys._getframe(1)
        while frame.f_code.co_filename.startswith(_DYNAMO) and frame.f_back is not None:
            # Dynamo wraps this method, so as not to trace it.
            frame = frame.f_back
        if self._recorder.is_suspended or is_of_compiler(frame) or func in _NO_CALLS:
            return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)


@contextmanager
def inside(recorder: TorchRecorder) -> Iterator[None]:
    """Record no operator that is called meanwhile."""
    before, recorder.is_suspended = recorder.is_suspended, True
    try:
        yield
    finally:
        recorder.is_suspended = before


def has_values(operator: TracedOperator) -> bool:
    """Return whether an operator computes values; some return memory that nothing was written to."""
    return operator.target not in _NO_CALLS and operator.target.overloadpacket.__name__ not in UNDEFINED_RESULTS


def _name(func: Any) -> str:
    library = "Aten" if func.namespace == "aten" else func.namespace
    return f"{library}.{func.overloadpacket.__name__}.{func._overloadname}"


def _writes_as(outer: Any, func: Any) -> bool:
    """Return whether an operator writes in place what another returns."""
    word: str = getattr(getattr(outer, "overloadpacket", None), "__name__", "")
    return word.endswith("_") and word[:-1] == func.overloadpacket.__name__


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are equal, NaN as well."""
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return bool(one == other)
    return one.shape == other.shape and bool(((one == other) | ((one != one) & (other != other))).all())


def _numbers(tree: Any) -> set[int]:
    return {one.number for one in tree_leaves(tree) if isinstance(one, Value)}


def _number(value: Any) -> int | None:
    return value.number if isinstance(value, Value) else None

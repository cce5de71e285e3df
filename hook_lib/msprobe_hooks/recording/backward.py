"""The backward half of a call: the gradients of all its outputs and of all its inputs.

Nothing is put between the tensors. When a call returns, the part of the autograd graph that it made is walked from
its outputs to the edges that lead to its inputs; hooks on those nodes see each gradient on its way in and out. A tensor
that other calls use as well thus shows what *this* call contributes, as a full backward hook of a module would.

What is collected during a backward pass is finished when that pass ends, complete or not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

from msprobe_hooks.recording.safety_net import Note, guarded

#: Takes the gradients of a call's outputs and those of its inputs.
Emit: TypeAlias = Callable[[list[Any], list[Any]], None]

# A single API makes a handful of nodes; a module as large as a whole model some ten thousands.
_MAX_NODES = 200_000

_Tensor = TypeVar("_Tensor")

_PLAIN = frozenset({int, float, bool, str, slice, type(None)})


def tensors_in(values: Any, tensor_class: type[_Tensor]) -> list[_Tensor]:
    """Return the tensors of nested lists, tuples and mappings, depth first."""
    if isinstance(values, tensor_class):
        return [values]
    tensors: list[_Tensor] = []
    _collect(values, tensor_class, tensors)
    return tensors


def _collect(values: Any, tensor_class: type[_Tensor], tensors: list[_Tensor]) -> None:
    if isinstance(values, (tuple, list)):
        for value in values:
            # Most values are tensors or plain ones, for which nothing is called.
            if isinstance(value, tensor_class):
                tensors.append(value)
            elif type(value) not in _PLAIN:
                _collect(value, tensor_class, tensors)
    elif type(values) is dict or isinstance(values, Mapping):
        _collect(list(values.values()), tensor_class, tensors)


def mapped(change: Callable[[Any], Any], tensor_class: type, tree: Any) -> Any:
    """Return nested lists, tuples and dicts with other tensors in the place of theirs."""
    if isinstance(tree, tensor_class):
        return change(tree)
    if isinstance(tree, dict):
        return {key: mapped(change, tensor_class, value) for key, value in tree.items()}
    if type(tree) in (list, tuple):
        return like(tree, [mapped(change, tensor_class, item) for item in tree])
    return tree


def like(values: Any, items: list[Any]) -> Any:
    """Return a list or tuple of the class of another one, also of a named tuple, with these items."""
    return type(values)(*items) if hasattr(values, "_fields") else type(values)(items)


class Node(Protocol):
    """A node of an autograd graph; two looks at one node give objects that are equal and have one hash."""

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """The nodes (or None) that the gradients of its inputs go to, and which of a node's outputs each one is."""

    def register_hook(self, fn: Callable[..., Any]) -> Any:
        """Register a function to call with the gradients that the node passes on and those that it took."""

    def register_prehook(self, fn: Callable[..., Any]) -> Any:
        """Register a function to call with the gradients that the node is about to take."""


_Node = TypeVar("_Node", bound=Node)


class Inputs:
    """Places where gradients leave a call: taken before it runs, because an in-place call moves its input's edge.

    Only the inputs that take a gradient ``count``; each has its slot in the record, in their order. ``edges`` maps
    (node, number of its output) to slots; those without slots lead to tensors that the record only waits for.
    """

    __slots__ = ("count", "edges")

    def __init__(self) -> None:
        self.edges: dict[tuple[Any, int], list[int]] = {}
        self.count = 0

    @property
    def shared(self) -> list[list[int]]:
        """The groups of inputs, by their slots, that are one tensor; most hold one input."""
        return [slots for slots in self.edges.values() if slots]

    def slots(self, node: Any, number: int) -> list[int] | None:
        """Return the inputs that an edge leads to, or None where it leads to none of them."""
        return self.edges.get((node, number))


class Backward:
    """Collects the gradients of one call, named ``where``, as they come by, and emits them once.

    ``sum_of`` adds two gradients of one input.
    """

    __slots__ = ("_emit", "_expected", "_grad_inputs", "_grad_outputs", "_sum", "_where", "listener")

    def __init__(
        self,
        outputs: int,
        inputs: int,
        emit: Emit,
        sum_of: Callable[[Any, Any], Any],
        listener: Listener,
        where: str,
    ) -> None:
        self.listener = listener
        self._where = where
        self._sum = sum_of
        self._grad_outputs: list[Any] = [None] * outputs
        self._grad_inputs: list[Any] = [None] * inputs
        self._expected = 0
        self._emit: Emit | None = emit

    def expect(self) -> None:
        """Count one more hook that will fire if the whole graph of the call is used."""
        self._expected += 1

    def take_grad_outputs(self, slots: Iterable[tuple[int, int]], gradients: tuple[Any, ...], *, counts: bool) -> None:
        """Take the gradients of outputs: pairs of output and its number on the node that fires."""
        if self._emit is None:
            self.listener.again()
            return
        for slot, number in slots:
            self._grad_outputs[slot] = gradients[number]
        if counts:
            self._note_one()

    def take_grad_inputs(self, places: Iterable[tuple[int, list[int]]], gradients: tuple[Any, ...]) -> None:
        """Take the gradients that a node passes on: pairs of place and the inputs it leads to."""
        if self._emit is not None:
            for place, slots in places:
                gradient = gradients[place]
                if slots and gradient is not None:
                    self._add(slots[0], gradient)
                    for slot in slots[1:]:
                        self._grad_inputs[slot] = self._grad_inputs[slots[0]]
            self._note_one()

    def finish(self) -> None:
        """Emit what came, as when part of the graph was not used; a second time does nothing."""
        emit, self._emit = self._emit, None
        if emit is not None:
            grad_outputs, grad_inputs = self._grad_outputs, self._grad_inputs
            self._grad_outputs, self._grad_inputs = [], []
            emit(grad_outputs, grad_inputs)

    def fail(self, error: Exception) -> None:
        """Report that the gradients could not be taken, and emit none: those that came are not all there are."""
        self._emit = _drop
        self.listener.note(self._where, error)

    def _add(self, slot: int, gradient: Any) -> None:
        total = self._grad_inputs[slot]
        self._grad_inputs[slot] = gradient if total is None else self._sum(total, gradient)

    def _note_one(self) -> None:
        self._expected -= 1
        if self._expected == 0:
            self.finish()


def _drop(grad_outputs: list[Any], grad_inputs: list[Any]) -> None:
    pass


#: Called at the first gradient of a call, which can be finished when the backward pass that is running ends.
Begun: TypeAlias = Callable[[Backward], None]


@dataclass(frozen=True, slots=True)
class Listener:
    """Interface that the hooks of all calls of a recording call.

    ``begun`` at the first gradient of a call whose graph has several nodes, ``again`` in a further backward pass
    through a call, ``note`` when gradients could not be taken.
    """

    begun: Begun
    again: Callable[[], None]
    note: Note


def boundary(start: Iterable[_Node], inputs: Inputs) -> dict[_Node, list[tuple[int, list[int]]]]:
    """Return the nodes, made by a call, from which gradients go to its inputs: pairs of place and the inputs' slots.

    ``start`` are the nodes that made the outputs.
    """
    slots_by_node: dict[_Node, list[tuple[int, list[int]]]] = {}
    visited = set(start)
    waiting = list(visited)
    while waiting and len(visited) < _MAX_NODES:
        node = waiting.pop()
        for place, (following, number) in enumerate(node.next_functions):
            if following is None:
                continue
            slots = inputs.slots(following, number)
            if slots is not None:
                slots_by_node.setdefault(node, []).append((place, slots))
            elif following not in visited:
                visited.add(following)
                waiting.append(following)
    return slots_by_node


def watch_nodes(
    backward: Backward,
    output_nodes: Mapping[_Node, list[tuple[int, int]]],
    input_nodes: Mapping[_Node, list[tuple[int, list[int]]]],
) -> None:
    """Register hooks before the nodes that made a call's outputs, after those that pass gradients on to its inputs."""
    for node, slots in output_nodes.items():
        # Some outputs may go unused; once the gradients of all inputs were seen, no more can have been on their way.
        if not input_nodes:
            backward.expect()
        node.register_prehook(guarded(GradOutputsHook(backward, slots, counts=not input_nodes), backward.fail))
    for node, places in input_nodes.items():
        backward.expect()
        node.register_hook(guarded(GradInputsHook(backward, places), backward.fail))


class GradOutputsHook:
    """A hook before a node: takes the gradients of outputs."""

    __slots__ = ("_backward", "_counts", "_slots")

    def __init__(self, backward: Backward, slots: list[tuple[int, int]], *, counts: bool) -> None:
        self._counts = counts
        self._backward = backward
        self._slots = slots

    def __call__(self, grad_outputs: tuple[Any, ...]) -> None:
        """Take what comes to the node."""
        self._backward.listener.begun(self._backward)
        self._backward.take_grad_outputs(self._slots, grad_outputs, counts=self._counts)


class GradInputsHook:
    """A hook after a node: takes the gradients that it passes on to inputs."""

    __slots__ = ("_backward", "_places")

    def __init__(self, backward: Backward, places: list[tuple[int, list[int]]]) -> None:
        self._backward = backward
        self._places = places

    def __call__(self, grad_inputs: tuple[Any, ...], _: tuple[Any, ...]) -> None:
        """Take what the node passes on."""
        self._backward.listener.begun(self._backward)
        self._backward.take_grad_inputs(self._places, grad_inputs)


class Engine(Protocol):
    """A framework's autograd engine."""

    def running_pass(self) -> int:
        """Return the number that the backward pass which runs in this thread has to itself."""

    def at_end_of_pass(self, callback: Callable[[], None]) -> None:
        """Register a function to call when the backward pass that is running has ended."""


class Finishing(Protocol):
    """Record that is put together during a backward pass."""

    def finish(self) -> None:
        """Write what came so far; a second time does nothing."""

    def fail(self, error: Exception) -> None:
        """Report that it could not be written."""


class BackwardPasses:
    """The backward passes that are running, of all threads, and what waits for their ends."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._waiting: dict[int, dict[int, Finishing]] = {}

    def at_end(self, one: Finishing) -> None:
        """Finish something when the backward pass that is running ends."""
        number = self._engine.running_pass()
        waiting = self._waiting.get(number)
        # A pass that is known does not end while a gradient goes by in it.
        if waiting is not None:
            waiting[id(one)] = one
            return
        with self._lock:
            is_first = number not in self._waiting
            self._waiting.setdefault(number, {})[id(one)] = one
        if is_first:
            self._engine.at_end_of_pass(partial(self._finish, number))

    def forget(self) -> None:
        """Drop all that waits."""
        with self._lock:
            self._waiting.clear()

    def abandon(self) -> None:
        """Abandon everything in a forked child, where the lock may be held by a thread that does not exist there."""
        self._lock = threading.Lock()
        self._waiting.clear()

    def _finish(self, number: int) -> None:
        with self._lock:
            waiting = self._waiting.pop(number, {})
        for one in waiting.values():
            guarded(one.finish, one.fail)()

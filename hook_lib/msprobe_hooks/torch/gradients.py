"""The backward half of a call: the gradients of all its outputs and of all its inputs.

Nothing is put between the tensors. When a call returns, the part of the autograd graph that it made is walked from
its outputs to the edges that lead to its inputs; hooks on those nodes see each gradient on its way in and out. A tensor
that is also used elsewhere thus shows what *this* call contributes, as a full backward hook of a module would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd.graph import Node

from msprobe_hooks.recording.backward import Arriving, Backward, Emit, Leaving
from msprobe_hooks.torch.quiet import Quiet

Edge: TypeAlias = tuple[Node, int]

# A single API makes a handful of nodes; a module as large as a whole model some ten thousands.
_MAX_NODES = 200_000


def tensors_in(values: Any) -> Iterator[Tensor]:
    """Yield the tensors of nested lists, tuples and mappings, depth first."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from tensors_in(value)
    elif isinstance(values, Mapping):
        for value in values.values():
            yield from tensors_in(value)


class Inputs:
    """Where gradients leave a call: taken before it runs, because an in-place call moves its input's edge.

    Only the inputs that require a gradient count; each has its slot in the record, in their order. The record is
    complete when theirs and those of the ``awaited`` leaves have left.
    """

    __slots__ = ("count", "edges", "leaves")

    def __init__(self, tensors: Iterable[Tensor], awaited: Iterable[Tensor] = ()) -> None:
        self.edges: dict[Edge, list[int]] = {}
        self.leaves: dict[int, list[int]] = {}
        self.count = 0
        for tensor in tensors:
            if tensor.requires_grad:
                node = tensor.grad_fn
                if node is None:
                    self.leaves.setdefault(id(tensor), []).append(self.count)
                else:
                    self.edges.setdefault((node, tensor.output_nr), []).append(self.count)
                self.count += 1
        for leaf in awaited:
            self.leaves.setdefault(id(leaf), [])

    def slots(self, node: Node, number: int) -> list[int] | None:
        """Return the inputs that an edge leads to, or None where it leads to none of them."""
        found = self.edges.get((node, number))
        if found is None and self.leaves:
            variable = getattr(node, "variable", None)
            if variable is not None:
                return self.leaves.get(id(variable))
        return found


def watch(
    outputs: list[Tensor],
    inputs: Inputs,
    emit: Emit,
    begun: Callable[[Backward], None],
    again: Callable[[], None],
) -> None:
    """Arrange for ``emit(gradients of outputs, gradients of inputs)`` when the backward pass goes through a call.

    ``outputs`` are those that require a gradient. ``begun`` is told at the first gradient of a call whose graph has
    several nodes, so that it can be finished at the end of a backward pass that uses only part of it; ``again`` when a
    further backward pass goes through a call that was emitted.
    """
    arriving: dict[Node, list[tuple[int, int]]] = {}
    unchanged: dict[Node, list[tuple[int, int]]] = {}
    for slot, tensor in enumerate(outputs):
        node = tensor.grad_fn
        if node is not None:
            made_here = (node, tensor.output_nr) not in inputs.edges
            (arriving if made_here else unchanged).setdefault(node, []).append((slot, tensor.output_nr))
    if not arriving:
        # The call returned its inputs, as ``x.to(x.dtype)`` does: what arrives is what is passed on.
        if len(unchanged) == 1:
            ((node, slots),) = unchanged.items()
            _watch_unchanged(Backward(len(outputs), inputs.count, emit, again, _sum), node, slots, inputs)
        return
    leaving = _boundary(arriving, inputs)
    backward = Backward(len(outputs), inputs.count, emit, again, _sum)
    if len(arriving) == 1 and leaving.keys() <= arriving.keys():
        _watch_one_node(backward, *arriving.popitem(), next(iter(leaving.values()), []))
        return
    for node, slots in arriving.items():
        # Some outputs may go unused; once all gradients have left, no more can have been on their way.
        if not leaving:
            backward.expect()
        node.register_prehook(Arriving(backward, slots, begun, counts=not leaving))
    for node, places in leaving.items():
        backward.expect()
        node.register_hook(Leaving(backward, places, begun))


def _watch_one_node(
    backward: Backward, node: Node, slots: list[tuple[int, int]], places: list[tuple[int, list[int]]]
) -> None:
    backward.expect()

    def fire(grad_inputs: tuple[Tensor | None, ...], grad_outputs: tuple[Tensor | None, ...]) -> None:
        backward.arrive(slots, grad_outputs, counts=False)
        backward.leave(places, grad_inputs)

    node.register_hook(fire)


def _watch_unchanged(backward: Backward, node: Node, slots: list[tuple[int, int]], inputs: Inputs) -> None:
    backward.expect()
    places = [(number, inputs.edges[node, number]) for _, number in slots]

    def fire(_: tuple[Tensor | None, ...], grad_outputs: tuple[Tensor | None, ...]) -> None:
        backward.arrive(slots, grad_outputs, counts=False)
        backward.leave(places, grad_outputs)

    node.register_hook(fire)


def _boundary(start: Iterable[Node], inputs: Inputs) -> dict[Node, list[tuple[int, list[int]]]]:
    leaving: dict[Node, list[tuple[int, list[int]]]] = {}
    if inputs.count == 0:
        return leaving
    seen = set(start)
    waiting = list(seen)
    while waiting and len(seen) < _MAX_NODES:
        node = waiting.pop()
        for place, (following, number) in enumerate(node.next_functions):
            if following is None:
                continue
            slots = inputs.slots(following, number)
            if slots is not None:
                leaving.setdefault(node, []).append((place, slots))
            elif following not in seen:
                seen.add(following)
                waiting.append(following)
    return leaving


def is_in_backward() -> bool:
    """Tell whether this thread is running a backward pass."""
    return torch._C._current_graph_task_id() != -1


def _sum(known: Tensor, gradient: Tensor) -> Tensor:
    with Quiet():
        return known + gradient

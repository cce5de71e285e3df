"""The backward half of a call, read off MindSpore's autograd graph.

Inside a gradient function every tensor knows the node that made it (``_grad_node``), and nodes know those that their
gradients go to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mindspore import Tensor, mint

from msprobe_hooks.mindspore.elements import takes_gradient
from msprobe_hooks.recording import backward
from msprobe_hooks.recording.backward import Backward, Begun, Emit, boundary, watch_nodes

# Taken before recording functions come into its place: sums of gradients are no calls of the program.
_ADD = mint.add


class Node:
    """A node of MindSpore's graph, told by its id: each look at the graph gives another Python object."""

    __slots__ = ("_id", "_node")

    def __init__(self, node: Any) -> None:
        # The node is kept, because an id belongs to it only while it lives.
        self._node = node
        self._id = node._unique_id()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self._id == other._id

    def __hash__(self) -> int:
        return hash(self._id)

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """The nodes (or None) that the gradients of its inputs go to, and which of a node's outputs each one is."""
        return tuple((None if one is None else Node(one), number) for one, number in self._node.next_functions)

    def register_hook(self, fn: Callable[..., None]) -> None:
        """Have a function called with the gradients that the node passes on and those that it took."""
        self._node.register_hook(_as_function(fn))

    def register_prehook(self, fn: Callable[..., None]) -> None:
        """Have a function called with the gradients that the node is about to take."""
        self._node.register_prehook(_as_function(fn))


def _edge(tensor: Tensor) -> tuple[Node, int] | None:
    node = tensor._grad_node
    return None if node is None else (Node(node), int(tensor._output_index))


def is_awaited(tensor: Tensor) -> bool:
    """Tell whether a gradient can leave a call for this tensor."""
    return takes_gradient(tensor) and _edge(tensor) is not None


class Inputs(backward.Inputs):
    """Where gradients leave a call."""

    __slots__ = ()

    def __init__(self, tensors: Iterable[Tensor], awaited: Iterable[Tensor] = ()) -> None:
        super().__init__()
        for tensor in tensors:
            if takes_gradient(tensor) and (edge := _edge(tensor)) is not None:
                self.edges.setdefault(edge, []).append(self.count)
                self.count += 1
        for tensor in awaited:
            if takes_gradient(tensor) and (edge := _edge(tensor)) is not None:
                self.edges.setdefault(edge, [])


def watch(
    outputs: list[Tensor],
    inputs: Inputs,
    emit: Emit,
    begun: Begun,
    again: Callable[[], None],
) -> None:
    """Arrange for ``emit(gradients of outputs, gradients of inputs)`` when the backward pass goes through a call.

    ``begun`` is told at the first gradient, so that the record can be finished at the end of a backward pass that uses
    only part of the call's graph; ``again`` when a further pass goes through a call that was emitted.
    """
    output_nodes: dict[Node, list[tuple[int, int]]] = {}
    for slot, tensor in enumerate(outputs):
        edge = _edge(tensor)
        if edge is not None and edge not in inputs.edges:
            output_nodes.setdefault(edge[0], []).append((slot, edge[1]))
    if output_nodes:
        input_nodes = boundary(output_nodes, inputs) if inputs.edges else {}
        watch_nodes(Backward(len(outputs), inputs.count, emit, again, _ADD), output_nodes, input_nodes, begun)


def _as_function(hook: Callable[..., None]) -> Callable[..., None]:
    # MindSpore requires a function, and takes what it returns for the gradients to go on with.
    return lambda *gradients: hook(*gradients)

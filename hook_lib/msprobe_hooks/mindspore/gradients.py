"""The backward half of a call, read off MindSpore's autograd graph as it is read off PyTorch's.

Inside a gradient function every tensor knows the node that made it (``_grad_node``), and nodes know those that their
gradients go to. A node is told by its id: each look gives another Python object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from mindspore import Tensor, mint
from mindspore.common.api import _pynative_executor

from msprobe_hooks.mindspore.elements import takes_gradient
from msprobe_hooks.recording.backward import Arriving, Backward, Emit, Leaving

Node: TypeAlias = Any
Edge: TypeAlias = tuple[int, int]

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


def is_in_backward() -> bool:
    """Tell whether a backward pass is running."""
    return int(_pynative_executor.get_current_autodiff_engine_id()) != -1


class Inputs:
    """Where gradients leave a call: taken before it runs, because an in-place call moves its input's edge.

    Only the inputs that take a gradient count; each has its slot in the record, in their order.
    """

    __slots__ = ("_nodes", "awaited", "count", "edges")

    def __init__(self, tensors: Iterable[Tensor], awaited: Iterable[Tensor] = ()) -> None:
        self.edges: dict[Edge, list[int]] = {}
        self.count = 0
        # An id belongs to a node only while the node lives.
        self._nodes: list[Node] = []
        for tensor in tensors:
            if takes_gradient(tensor) and (node := tensor._grad_node) is not None:
                self._nodes.append(node)
                self.edges.setdefault((node._unique_id(), int(tensor._output_index)), []).append(self.count)
                self.count += 1
        for tensor in awaited:
            if takes_gradient(tensor) and (node := tensor._grad_node) is not None:
                self._nodes.append(node)
                self.edges.setdefault((node._unique_id(), int(tensor._output_index)), [])


def watch(
    outputs: list[Tensor],
    inputs: Inputs,
    emit: Emit,
    begun: Callable[[Backward], None],
    again: Callable[[], None],
) -> None:
    """Arrange for ``emit(gradients of outputs, gradients of inputs)`` when the backward pass goes through a call.

    ``begun`` is told at the first gradient, so that the record can be finished at the end of a backward pass that uses
    only part of the call's graph; ``again`` when a further pass goes through a call that was emitted.
    """
    nodes: dict[int, Node] = {}
    arriving: dict[int, list[tuple[int, int]]] = {}
    for slot, tensor in enumerate(outputs):
        node = tensor._grad_node
        if node is not None and (node._unique_id(), int(tensor._output_index)) not in inputs.edges:
            nodes[node._unique_id()] = node
            arriving.setdefault(node._unique_id(), []).append((slot, int(tensor._output_index)))
    if not arriving:
        return
    leaving = _boundary(nodes, inputs)
    backward = Backward(len(outputs), inputs.count, emit, again, mint.add)
    for key, slots in arriving.items():
        if not leaving:
            backward.expect()
        nodes[key].register_prehook(_returning_nothing(Arriving(backward, slots, begun, counts=not leaving)))
    for key, places in leaving.items():
        backward.expect()
        nodes[key].register_hook(_returning_nothing(Leaving(backward, places, begun)))


def _boundary(nodes: dict[int, Node], inputs: Inputs) -> dict[int, list[tuple[int, list[int]]]]:
    """Return the places of nodes from which gradients go to inputs; ``nodes`` grows by all that were met."""
    leaving: dict[int, list[tuple[int, list[int]]]] = {}
    waiting = list(nodes.items())
    while waiting and inputs.edges and len(nodes) < _MAX_NODES:
        key, node = waiting.pop()
        for place, (following, number) in enumerate(node.next_functions):
            if following is None:
                continue
            slots = inputs.edges.get((following._unique_id(), number))
            if slots is not None:
                leaving.setdefault(key, []).append((place, slots))
            elif following._unique_id() not in nodes:
                nodes[following._unique_id()] = following
                waiting.append((following._unique_id(), following))
    return leaving


def _returning_nothing(hook: Callable[..., None]) -> Callable[..., None]:
    # MindSpore wants a function, and takes what it returns for the gradients to go on with.
    return lambda *gradients: hook(*gradients)

"""The backward half of a call, from MindSpore's autograd graph, and the elements that its values become in a record.

Inside a gradient function every tensor knows the node that made it (``_grad_node``), and nodes know those that their
gradients go to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, TypeAlias

from mindspore import Tensor, mint
from mindspore._c_expression import typing as dtypes
from mindspore.common.api import _pynative_executor

from msprobe_hooks.dump.memory_layouts import contiguous_stride
from msprobe_hooks.recording import backward
from msprobe_hooks.recording.backward import Backward, Emit, Listener, boundary, watch_nodes
from msprobe_hooks.recording.elements import NOT_OWN, Elements, TensorEntry
from msprobe_hooks.recording.safety_net import guarded


class MindSporeElements(Elements):
    """Builds the elements of one record."""

    __slots__ = ()

    tensor_class = Tensor
    suffix = ".npy"

    def describe(self, tensor: Tensor) -> TensorEntry:
        """Return a tensor's entry without its values."""
        shape = [int(size) for size in tensor.shape]
        entry = TensorEntry(
            "mindspore.Tensor", str(tensor.dtype), shape, None, None, None, None, takes_gradient(tensor)
        )
        # Older versions do not say how a tensor lies in memory, and neither do those inside of a function transform.
        with suppress(AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError):
            _describe_memory(tensor, shape, entry)
        return entry

    def own(self, value: Any, path: str) -> Any:
        """Return the spelling of dtypes."""
        if isinstance(value, dtypes.Type):
            return {"type": "mindspore.dtype", "value": str(value)}
        return NOT_OWN


def _describe_memory(tensor: Tensor, shape: list[int], entry: TensorEntry) -> None:
    if 0 in shape:
        return
    if not tensor.is_contiguous():
        stride = [int(step) for step in tensor.stride()]
        # MindSpore calls some parts of a storage not contiguous that are.
        if tuple(stride) != contiguous_stride(shape):
            entry.stride = stride
    if offset := int(tensor.storage_offset()):
        entry.storage_offset = offset


def takes_gradient(tensor: Tensor) -> bool:
    """Return whether a gradient function that is running differentiates by this tensor."""
    return bool(tensor._requires_grad)


# Taken before recording functions come into its place: sums of gradients are not calls of the program.
_ADD = mint.add

#: Where a gradient goes: a node (or None) and which of its outputs that is the gradient of.
Edge: TypeAlias = "tuple[Node | None, int]"


class Node:
    """A node of MindSpore's graph, identified by its id: each look at the graph gives another Python object."""

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
    def next_functions(self) -> tuple[Edge, ...]:
        """Return where the gradients of its inputs go."""
        return tuple((None if one is None else Node(one), number) for one, number in self._node.next_functions)

    def register_hook(self, fn: Callable[..., None]) -> None:
        """Register a function to call with the gradients that the node passes on, one an edge, and those it took."""
        edges = self.next_functions

        def hook(passed_on: tuple[Any, ...], taken: tuple[Any, ...]) -> None:
            # In a backward pass a node of compiled code has no other edges than those of gradients that are asked for.
            is_whole = len(passed_on) == len(edges)
            fn(passed_on if is_whole else _at_edges(edges, self.next_functions, passed_on), taken)

        self._node.register_hook(hook)

    def register_prehook(self, fn: Callable[..., None]) -> None:
        """Register a function to call with the gradients that the node is about to take."""
        self._node.register_prehook(_as_function(fn))


def _at_edges(edges: Iterable[Edge], kept: Iterable[Edge], gradients: Iterable[Tensor]) -> tuple[Tensor | None, ...]:
    """Return a gradient for each of a node's edges, None for those that were not kept; the kept ones are in order."""
    waiting = deque(zip(kept, gradients, strict=False))
    return tuple(waiting.popleft()[1] if waiting and waiting[0][0] == edge else None for edge in edges)


def _edge(tensor: Tensor) -> tuple[Node, int] | None:
    node = tensor._grad_node
    return None if node is None else (Node(node), int(tensor._output_index))


def is_awaited(tensor: Tensor) -> bool:
    """Return whether a gradient can leave a call for this tensor."""
    return takes_gradient(tensor) and _edge(tensor) is not None


class Inputs(backward.Inputs):
    """Places where gradients leave a call."""

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


def watch(outputs: list[Tensor], inputs: Inputs, emit: Emit, listener: Listener, where: str) -> None:
    """Arrange for ``emit(gradients of outputs, gradients of inputs)`` when the backward pass goes through a call.

    ``where`` is what the call is named when its gradients cannot be taken.
    """
    output_nodes: dict[Node, list[tuple[int, int]]] = {}
    unchanged: dict[Node, list[tuple[int, int]]] = {}
    for slot, tensor in enumerate(outputs):
        edge = _edge(tensor)
        if edge is not None:
            made_here = edge not in inputs.edges
            (output_nodes if made_here else unchanged).setdefault(edge[0], []).append((slot, edge[1]))
    backward = Backward(len(outputs), inputs.count, emit, _ADD, listener, where)
    if output_nodes:
        input_nodes = boundary(output_nodes, inputs) if inputs.edges else {}
        watch_nodes(backward, output_nodes, input_nodes)
    elif len(unchanged) == 1:
        # The call returned its inputs, as ``x.astype(x.dtype)`` does: the gradients of both are the same.
        ((node, slots),) = unchanged.items()
        _watch_unchanged(backward, node, slots, inputs)


def _watch_unchanged(backward: Backward, node: Node, slots: list[tuple[int, int]], inputs: Inputs) -> None:
    backward.expect()
    places = [(number, inputs.edges[node, number]) for _, number in slots]

    def fire(_: tuple[Any, ...], taken: tuple[Any, ...]) -> None:
        backward.take_grad_outputs(slots, taken, counts=False)
        backward.take_grad_inputs(places, taken)

    node.register_hook(guarded(fire, backward.fail))


def _as_function(hook: Callable[..., None]) -> Callable[..., None]:
    # MindSpore requires a function, and takes what it returns for the gradients to go on with.
    return lambda *gradients: hook(*gradients)


#: The number of the backward pass that runs where none does.
NO_PASS: Final = -1


class MindSporeEngine:
    """Identity of its backward passes, and the end of one."""

    def running_pass(self) -> int:
        """Return the number of the engine's run."""
        return int(_pynative_executor.get_current_autodiff_engine_id())

    def at_end_of_pass(self, callback: Callable[[], None]) -> None:
        """Queue a callback of the engine."""
        _pynative_executor.queue_backward_final_callback(callback)

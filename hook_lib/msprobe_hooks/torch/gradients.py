"""The backward half of a call, from PyTorch's autograd graph, and calls that activation checkpointing repeats."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable
from types import FrameType, FunctionType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import Node
from torch.utils.checkpoint import _StopRecomputationError

from msprobe_hooks.recording import backward
from msprobe_hooks.recording.backward import Backward, Emit, Listener, boundary, watch_nodes
from msprobe_hooks.recording.safety_net import guarded, report
from msprobe_hooks.torch.no_dispatch import NoDispatch

# The class of the nodes that gradients of leaves end in.
_LEAF = torch._C._functions.AccumulateGrad  # type: ignore[attr-defined]


class Inputs(backward.Inputs):
    """Places where gradients leave a call. The edge of a leaf is known only in the graph, by the tensor it leads to.

    ``bases`` are the ids of the tensors that inputs are views of.
    """

    __slots__ = ("bases", "leaves")

    def __init__(self, tensors: Iterable[Tensor], awaited: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.leaves: dict[int, list[int]] = {}
        self.bases: set[int] = set()
        for tensor in tensors:
            if tensor.requires_grad:
                base = tensor._base
                if base is not None:
                    self.bases.add(id(base))
                node = tensor.grad_fn
                if node is None:
                    self.leaves.setdefault(id(tensor), []).append(self.count)
                else:
                    self.edges.setdefault((node, tensor.output_nr), []).append(self.count)
                self.count += 1
        for leaf in awaited:
            self.leaves.setdefault(id(leaf), [])

    @property
    def shared(self) -> list[list[int]]:
        """The groups of inputs, by their slots, that are one tensor."""
        return super().shared + [slots for slots in self.leaves.values() if slots]

    def slots(self, node: Node, number: int) -> list[int] | None:
        """Return the inputs that an edge leads to, or None where it leads to none of them."""
        slots = self.edges.get((node, number))
        if slots is None and type(node) is _LEAF and self.leaves:
            return self.leaves.get(id(node.variable))  # type: ignore[attr-defined]
        return slots


def watch(outputs: list[Tensor], inputs: Inputs, emit: Emit, listener: Listener, where: str) -> None:
    """Arrange for ``emit(gradients of outputs, gradients of inputs)`` when the backward pass goes through a call.

    ``outputs`` are those that require a gradient. ``where`` is what the call is named when its gradients cannot be
    taken.
    """
    output_nodes: dict[Node, list[tuple[int, int]]] = {}
    unchanged: dict[Node, list[tuple[int, int]]] = {}
    viewed: dict[int, torch.Size] = {}
    for slot, tensor in enumerate(outputs):
        node, number = tensor.grad_fn, tensor.output_nr
        if node is not None:
            made_here = (node, number) not in inputs.edges
            if made_here and (base := _whole_base(tensor, inputs)) is not None:
                viewed[slot] = tensor.shape
                node, number = base
            (output_nodes if made_here else unchanged).setdefault(node, []).append((slot, number))
    if viewed:
        emit = _shaped(emit, viewed)
    if not output_nodes:
        # The call returned its inputs, as ``x.to(x.dtype)`` does: the gradients of both are the same.
        if len(unchanged) == 1:
            ((node, slots),) = unchanged.items()
            backward = Backward(len(outputs), inputs.count, emit, _sum, listener, where)
            _watch_unchanged(backward, node, slots, inputs)
        return
    input_nodes = boundary(output_nodes, inputs) if inputs.count else {}
    backward = Backward(len(outputs), inputs.count, emit, _sum, listener, where)
    if len(output_nodes) == 1 and input_nodes.keys() <= output_nodes.keys():
        _watch_one_node(backward, *output_nodes.popitem(), next(iter(input_nodes.values()), []))
    else:
        watch_nodes(backward, output_nodes, input_nodes)


def _whole_base(tensor: Tensor, inputs: Inputs) -> tuple[Node, int] | None:
    """Return the edge of the tensor that an output is a view of, all of it, where the call made that tensor as well.

    An in-place change of a view takes its own node out of the graph; what it is a view of stays. So `linear` makes its
    results of three dimensions on a CPU.
    """
    base = tensor._base
    # A view of a view has the base that its input has.
    if base is None or id(base) in inputs.bases:
        return None
    if base.numel() != tensor.numel() or not (base.is_contiguous() and tensor.is_contiguous()):
        return None
    node = base.grad_fn
    return None if node is None or (node, base.output_nr) in inputs.edges else (node, base.output_nr)


def _shaped(emit: Emit, shapes: dict[int, torch.Size]) -> Emit:
    def emit_shaped(grad_outputs: list[Tensor | None], grad_inputs: list[Tensor | None]) -> None:
        with NoDispatch():
            for slot, shape in shapes.items():
                gradient = grad_outputs[slot]
                grad_outputs[slot] = None if gradient is None else gradient.reshape(shape)
        emit(grad_outputs, grad_inputs)

    return emit_shaped


def _watch_one_node(
    backward: Backward, node: Node, slots: list[tuple[int, int]], places: list[tuple[int, list[int]]]
) -> None:
    backward.expect()

    def fire(grad_inputs: tuple[Tensor | None, ...], grad_outputs: tuple[Tensor | None, ...]) -> None:
        # As `guarded`, and without a function more for each call: most calls make one node.
        try:
            backward.take_grad_outputs(slots, grad_outputs, counts=False)
            backward.take_grad_inputs(places, grad_inputs)
        except Exception as error:
            report(error, backward.fail)

    node.register_hook(fire)


def _watch_unchanged(backward: Backward, node: Node, slots: list[tuple[int, int]], inputs: Inputs) -> None:
    backward.expect()
    places = [(number, inputs.edges[node, number]) for _, number in slots]

    def fire(_: tuple[Tensor | None, ...], grad_outputs: tuple[Tensor | None, ...]) -> None:
        backward.take_grad_outputs(slots, grad_outputs, counts=False)
        backward.take_grad_inputs(places, grad_outputs)

    node.register_hook(guarded(fire, backward.fail))


def is_in_backward() -> bool:
    """Return whether this thread is running a backward pass."""
    return torch._C._current_graph_task_id() != -1


def _sum(earlier: Tensor, gradient: Tensor) -> Tensor:
    with NoDispatch():
        return earlier + gradient


class TorchEngine:
    """Identity of its backward passes, and the end of one."""

    # Asked at every gradient, so nothing comes between the question and the answer.
    running_pass = staticmethod(torch._C._current_graph_task_id)

    def at_end_of_pass(self, callback: Callable[[], None]) -> None:
        """Queue a callback of the engine."""
        torch.autograd.Variable._execution_engine.queue_callback(callback)


def is_recomputed(frame: FrameType | None) -> bool:
    """Return whether a call is made by activation checkpointing, during the backward pass."""
    if not is_in_backward():
        return False
    while frame is not None:
        code = frame.f_code
        if code.co_filename.endswith("checkpoint.py") and code.co_name in ("recompute_fn", "backward"):
            return True
        frame = frame.f_back
    return False


def is_stop(error: BaseException) -> bool:
    """Return whether an exception is how checkpointing ends a recomputation that has brought what it was made for."""
    return isinstance(error, _StopRecomputationError)


class PostponedStop:
    """Context in which a recomputation is not stopped in the middle of a call, but when the context ends.

    Checkpointing raises out of the call that saves the last tensor it waits for, which then would have no result.
    """

    __slots__ = ("_is_on", "_stop")

    def __enter__(self) -> None:
        self._stop: BaseException | None = None
        hooks = saved_tensors_hooks()
        self._is_on = hooks is not None
        if hooks is None:
            return
        pack, unpack = hooks

        def pack_unless_stopped(tensor: torch.Tensor) -> Any:
            if self._stop is None:
                try:
                    return pack(tensor)
                except _StopRecomputationError as stop:
                    self._stop = stop
            return tensor

        torch._C._autograd._push_saved_tensors_default_hooks(pack_unless_stopped, unpack)

    def __exit__(self, *_: object) -> None:
        if self._is_on:
            torch._C._autograd._pop_saved_tensors_default_hooks()
        if self._stop is not None:
            raise self._stop


def saved_tensors_hooks() -> Any:
    """Return what packs and unpacks the tensors that this thread's calls save, None where nothing does."""
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return None if top is None else top(False)


class Checkpoint(NamedTuple):
    """A checkpoint without reentry: the object that identifies it, and the pass that repeats its calls, if one does."""

    frame: Any
    backward_pass: Hashable | None


def running_checkpoint() -> Checkpoint | None:
    """Return the checkpoint that this thread's calls belong to, the innermost; None where there is none."""
    hooks = saved_tensors_hooks()
    # They are functions within torch's own, which hold what they belong to.
    pack = None if hooks is None else inspect.unwrap(hooks[0])
    if not isinstance(pack, FunctionType) or not pack.__code__.co_filename.endswith("checkpoint.py"):
        return None
    closure = {
        name: cell.cell_contents for name, cell in zip(pack.__code__.co_freevars, pack.__closure__ or (), strict=True)
    }
    if "target_frame_ref" in closure:
        return Checkpoint(closure["target_frame_ref"](), closure["gid"])
    return Checkpoint(closure["frame"], None) if "frame" in closure else None

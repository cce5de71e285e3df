"""Side of a check: arguments put in place, the call, its gradients, and what the call changed."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch._ops import OpOverloadPacket
from torch.autograd.graph import _engine_run_backward

from msprobe_standards.tensor_layouts import is_plain
from pytest_msprobe.devices.math_modes import full_precision, is_full_precision
from pytest_msprobe.engine.replay.calls.arguments import Arguments, DeviceArgument
from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.engine.values.pytree import map_tensors, map_with_paths, tensors_with_paths
from pytest_msprobe.engine.values.strides import (
    as_laid_out,
    has_gaps,
    is_lazy,
    overlaps,
    resolved,
    whole_memory,
    with_bits_of,
)
from pytest_msprobe.engine.values.system_memory import return_freed_pages
from pytest_msprobe.results.outcomes import Skip, SkipReason

Gradients = dict[str, "torch.Tensor | None"]

# Smaller inputs than these many elements take less memory than it takes time to let go of them.
_LARGE = 2**18

_AS_IT_IS: contextlib.AbstractContextManager[None] = contextlib.nullcontext()


class Invoke(Protocol):
    """Function with which a side calls another: a device's ``call``, or the plain call on the CPU."""

    def __call__(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, record: str) -> Any:
        """Call ``func`` for the record of that name."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a trial: where it computes, in which dtypes and how.

    ``put`` brings a CPU tensor to where it is used, as a copy wherever a call may write to it. ``dtype`` maps recorded
    dtypes to the ones used here. ``autocast`` is the dtype of an autocast region around the call, None for none.
    ``full_precision`` turns reduced-precision matmuls off, whatever the process allows. ``keeps_layout`` says that
    recorded layouts are made there.
    """

    put: Callable[[torch.Tensor], torch.Tensor]
    dtype: Callable[[torch.dtype], torch.dtype]
    location: torch.device
    invoke: Invoke
    autocast: torch.dtype | None = None
    default_dtype: torch.dtype = torch.float32
    full_precision: bool = False
    keeps_layout: bool = False


@dataclass(slots=True)
class Run:
    """A call that has been run on one side.

    ``output`` is what the function returned, ``written`` are the paths of the arguments that it modified. ``arguments``
    holds those tensors, and all of a call that may write to its arguments, by path; ``leaves`` the ones that gradients
    are taken of.
    """

    output: Any
    arguments: dict[str, torch.Tensor]
    written: tuple[str, ...]
    leaves: dict[str, torch.Tensor]
    _own_backward: str = ""

    @property
    def own_backward(self) -> str:
        """The name of a backward in its graph that is not one of torch's; empty where there is none."""
        return self._own_backward or _custom_backward(self.results)

    def let_go_of_graph(self, convert: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.detach) -> None:
        """Keep of the output what ``convert`` makes of its tensors, and the name of its own backward."""
        self._own_backward = self.own_backward
        self.output = map_tensors(convert, self.output)

    @property
    def changed(self) -> dict[str, torch.Tensor]:
        """The arguments that it modified and did not return."""
        returned = self.returned_at() if self.written else {}
        return {path: self.arguments[path] for path in self.written if path not in returned}

    def returned_at(self) -> dict[str, str]:
        """Return the paths in the output of arguments that were returned: the same memory, laid out alike."""
        places = {_place(tensor): path for path, tensor in tensors_with_paths(self.output)}
        returned = ((path, places.get(_place(tensor))) for path, tensor in self.arguments.items() if places)
        return {path: place for path, place in returned if place is not None}

    @property
    def results(self) -> Any:
        """Return what gradients arrive for: the output, of a call that returns nothing what it changed."""
        return self.changed if self.output is None else self.output


@dataclass(slots=True)
class _Inputs:
    """The arguments of one side: its own tensors by path, and those among them that gradients are taken of."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    leaves: dict[str, torch.Tensor] = field(default_factory=dict)


def run_forward(
    function: Callable[..., Any], arguments: Arguments, side: Side, *, operation: str, record: str, differentiate: bool
) -> Run:
    """Run a call on one side. Whatever the function raises passes through."""
    differentiable = arguments.differentiable if differentiate else frozenset()
    in_place = may_work_in_place(operation, arguments)
    inputs = _put(arguments, side, differentiable, op_info(operation).on_cpu, copy_leaves=in_place)
    versions = {path: tensor._version for path, tensor in inputs.tensors.items()}
    with _numeric_context(side), torch.set_grad_enabled(bool(differentiable)):
        output = side.invoke(function, inputs.args, inputs.kwargs, record=record)
    if output is NotImplemented:
        raise TypeError(f"{operation} does not take these operands")
    return finished(output, operation, arguments, inputs.tensors, versions, inputs.leaves)


def finished(
    output: Any,
    operation: str,
    arguments: Arguments,
    tensors: dict[str, torch.Tensor],
    versions: Mapping[str, int],
    leaves: dict[str, torch.Tensor],
) -> Run:
    """Return the run that a call has made on its own ``tensors``, by path; ``versions`` are those before the call."""
    uncounted = (*_running_statistics(operation, arguments), *_written_lists(operation))
    written = tuple(
        path
        for path, tensor in tensors.items()
        if tensor._version != versions[path] or f"{path}.".startswith(uncounted)
    )
    tensors_after = tensors if may_work_in_place(operation, arguments) else {path: tensors[path] for path in written}
    return Run(output, tensors_after, written, leaves)


def _place(tensor: torch.Tensor) -> object:
    """Return what two tensors share if they are the same elements of the same memory."""
    if not is_plain(tensor):
        return id(tensor)
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def _running_statistics(operation: str, arguments: Arguments) -> tuple[str, ...]:
    """Return where running statistics are: torch does not count them as changed, so that their version stays."""
    first = op_info(operation).running_statistics
    if first is None:
        return ()
    # Functional.batch_norm has them before weight and bias, torch.batch_norm, which has nine arguments, behind.
    if first == 1 and len(arguments.args) + len(arguments.kwargs) >= 9:
        first = 3
    return (f"args.{first}.", f"args.{first + 1}.", "kwargs.running_mean.", "kwargs.running_var.")


@functools.cache
def _written_lists(operation: str) -> tuple[str, ...]:
    """Return where the lists are that an operation on many tensors writes to, mostly without torch's counting it."""
    packet = getattr(torch.ops.aten, operation, None) if operation.startswith(("_foreach_", "_fused_")) else None
    if not isinstance(packet, OpOverloadPacket):
        return ()
    overloads: list[str] = packet.overloads()  # type: ignore[no-untyped-call]
    arguments = getattr(packet, overloads[0])._schema.arguments
    written = [
        (i, argument.name)
        for i, argument in enumerate(arguments)
        if argument.alias_info and argument.alias_info.is_write
    ]
    return tuple(path for i, name in written for path in (f"args.{i}.", f"kwargs.{name}."))


def run_backward(
    run: Run, grad_outputs: Mapping[str, torch.Tensor], side: Side, *, record: str, keeps_output: bool = True
) -> Gradients:
    """Return the gradients of a run's leaves, by path, for the gradients of its outputs, by path.

    A leaf that no output depends on has None. The run's graph is used up; of large leaves the paths are kept alone, and
    of outputs that are not kept shapes and dtypes (``meta``).
    """
    outputs = dict(tensors_with_paths(run.results))
    if surplus := sorted(grad_outputs.keys() - outputs):
        raise Skip(SkipReason.UNSPECIFIED, f"a gradient arrives for result {surplus[0]}, of which nothing is promised")
    # Where none depends on a leaf, torch says so.
    paths = [path for path in grad_outputs if outputs[path].requires_grad] or list(grad_outputs)
    arriving = tuple(_put_gradient(grad_outputs[path], side).to(outputs[path].dtype, copy=False) for path in paths)
    roots = tuple(outputs[path] for path in paths)
    if not keeps_output:
        root: torch.Tensor = _Root.apply(arriving, *roots)  # type: ignore[no-untyped-call]
        arriving, roots = (torch.ones_like(root),), (root,)
        run.let_go_of_graph(lambda output: output.detach().to("meta"))
        del outputs
        return_freed_pages()
    with _numeric_context(side):
        gradients = side.invoke(gradients_of, (roots, arriving, tuple(run.leaves.values())), {}, record=record)
    by_path = dict(zip(run.leaves, gradients, strict=True))
    if any(leaf.numel() >= _LARGE for leaf in run.leaves.values()):
        # They would stay while their gradients are judged, as long as the outputs' graph does.
        run.leaves = dict.fromkeys(run.leaves, torch.empty(0))
        run.let_go_of_graph()
    return by_path


def _put_gradient(gradient: torch.Tensor, side: Side) -> torch.Tensor:
    if not is_plain(gradient):
        return side.put(gradient)
    if not side.keeps_layout:
        return side.put(resolved(gradient).contiguous())
    is_as_put = gradient.is_contiguous() and not gradient.storage_offset() and not is_lazy(gradient)
    return side.put(gradient) if is_as_put else _Memory(side.put).put(gradient)


def gradients_of(
    outputs: tuple[torch.Tensor, ...], arriving: tuple[torch.Tensor, ...], leaves: tuple[torch.Tensor, ...]
) -> tuple[torch.Tensor | None, ...]:
    """Return the gradients of the leaves for those that arrive for the outputs; the graph is used up.

    What ``torch.autograd.grad(outputs, leaves, arriving, allow_unused=True)`` gives. That function imports sympy for
    gradients that arrive, 0.2 s in each worker, and takes twice as long for a small call.
    """
    return _engine_run_backward(outputs, arriving, False, False, leaves, True, accumulate_grad=False)


class _Root(torch.autograd.Function):
    """A number whose gradients with respect to tensors are the given ones: it holds their graph without their values.

    Not every torch from 2.3 on takes an edge of the graph in place of an output.
    """

    @staticmethod
    def forward(ctx: Any, gradients: tuple[torch.Tensor, ...], *tensors: torch.Tensor) -> torch.Tensor:
        ctx.gradients = gradients
        return torch.zeros((), device=tensors[0].device)

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> Any:
        return (None, *ctx.gradients)


def _put(
    arguments: Arguments, side: Side, differentiable: frozenset[str], on_cpu: frozenset[str], *, copy_leaves: bool
) -> _Inputs:
    inputs = _Inputs((), {})
    memory, copies = (_Memory(side.put), _Memory(side.put)) if arguments.layouts else (None, None)

    def put(path: str, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            stays = path in on_cpu and not (leaf.is_floating_point() or leaf.is_complex())
            return leaf.clone() if stays else _put_tensor(path, leaf)
        if isinstance(leaf, torch.dtype):
            return side.dtype(leaf)
        return side.location if isinstance(leaf, DeviceArgument) else leaf

    def _put_tensor(path: str, leaf: torch.Tensor) -> torch.Tensor:
        if memory is None or copies is None or path not in arguments.layouts or not is_plain(leaf):
            tensor = as_laid_out(side.put, leaf if side.keeps_layout else resolved(leaf))
        elif not (side.keeps_layout or path in arguments.tied):
            tensor = side.put(resolved(leaf).contiguous())
        elif copy_leaves:
            return _put_copied(path, leaf, memory, copies)
        else:
            tensor = memory.put(leaf)
        if path in differentiable and (tensor.is_floating_point() or tensor.is_complex()):
            inputs.leaves[path] = tensor.requires_grad_()
            # An in-place API may not write to a leaf; through a copy the gradient still reaches it.
            tensor = _copied(tensor) if copy_leaves else tensor
        inputs.tensors[path] = tensor
        return tensor

    def _put_copied(path: str, leaf: torch.Tensor, memory: _Memory, copies: _Memory) -> torch.Tensor:
        tensor = copies.put(leaf)
        if path in differentiable and (tensor.is_floating_point() or tensor.is_complex()):
            inputs.leaves[path] = original = memory.put(leaf).requires_grad_()
            tensor = original.clone() if overlaps(tensor) else tensor.copy_(original)
        inputs.tensors[path] = tensor
        return tensor

    inputs.args = map_with_paths(put, arguments.args, "args")
    inputs.kwargs = map_with_paths(put, arguments.kwargs, "kwargs")
    return inputs


class _Memory:
    """The storages of CPU tensors on a side: each is put there once, and all that lies in it is found there.

    After a query and a key that one projection gave, which lie one after the other::

        _storages  {(0x7f30c0, torch.float16): <2048 elements on the card>}     address of the storage
                    query: elements 0 to 1023 of it, key: 1024 to 2047
    """

    def __init__(self, put: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._put = put
        self._storages: dict[tuple[int, torch.dtype], torch.Tensor] = {}

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a CPU tensor as it lies in its storage, with a count of changes of its own."""
        key = tensor.untyped_storage().data_ptr(), tensor.dtype
        placed = self._storages.get(key)
        if placed is None:
            placed = self._storages[key] = self._put(whole_memory(tensor))
        place = placed.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        return with_bits_of(place, tensor).data


def _copied(leaf: torch.Tensor) -> torch.Tensor:
    """Return a copy that gradients pass, as the leaf is laid out; elements that share memory get their own."""
    is_kept = (has_gaps(leaf) or is_lazy(leaf)) and not overlaps(leaf)
    return as_laid_out(torch.clone, leaf).copy_(leaf) if is_kept else leaf.clone()


#: Parameters whose True is no ``inplace=True``.
FLAGS = frozenset({"copy", "non_blocking", "is_causal", "enable_gqa", "keepdim"})


def may_work_in_place(operation: str, arguments: Arguments) -> bool:
    """Return whether a call may write to its arguments."""
    traits = op_info(operation)
    # inplace=True has another position in each API that takes it. What has running statistics writes to them alone.
    named_args = (value for name, value in arguments.kwargs.items() if name not in FLAGS)
    is_any_true = any(value is True for value in (*arguments.args, *named_args))
    switched_on = is_any_true and traits.running_statistics is None
    named_so = operation.endswith("_") and not operation.endswith("__")
    return switched_on or named_so or arguments.kwargs.get("out") is not None or traits.in_place


def _numeric_context(side: Side) -> contextlib.AbstractContextManager[None]:
    """Return the context in which a side computes; most calls need no more of it than a default dtype."""
    if side.autocast is None and (not side.full_precision or is_full_precision()):
        return _DefaultDtype(side.default_dtype)
    return _unusual_context(side)


@contextlib.contextmanager
def _unusual_context(side: Side) -> Iterator[None]:
    autocast = side.autocast
    in_full = full_precision() if side.full_precision else _AS_IT_IS
    cast = _AS_IT_IS if autocast is None else torch.autocast(side.location.type, autocast, cache_enabled=False)
    if autocast is not None and side.location.type != "cpu" and not getattr(cast, "_enabled", True):
        # torch warns of it, and would compute without.
        raise Skip(SkipReason.UNSUPPORTED, f"{side.location.type} has no autocast to {autocast}")
    with _DefaultDtype(side.default_dtype), in_full, cast:
        yield


class _DefaultDtype(contextlib.AbstractContextManager[None]):
    """The dtype of what is made without one. Not a generator's context, which takes three times as many steps."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def __enter__(self) -> None:
        self._former = torch.get_default_dtype()
        if self._former is not self._dtype:
            torch.set_default_dtype(self._dtype)

    def __exit__(self, *_: object) -> None:
        if self._former is not self._dtype:
            torch.set_default_dtype(self._former)


def _custom_backward(results: Any) -> str:
    """Return the name of a backward that is not torch's and that gradients of results pass; empty without one."""
    waiting: list[Any] = [tensor.grad_fn for _, tensor in tensors_with_paths(results) if tensor.grad_fn is not None]
    visited = set(waiting)
    while waiting:
        node = waiting.pop()
        # A custom operator's backward (torch.library.register_autograd) is such a function too.
        if isinstance(node, torch.autograd.function.BackwardCFunction) or type(node).__name__ == "CppFunction":
            return str(node.name()).removeprefix("GeneratedBackwardFor_").removesuffix("Backward")
        successors = {successor for successor, _ in node.next_functions if successor is not None} - visited
        visited |= successors
        waiting += successors
    return ""

"""A MindSpore function as one that takes and returns torch tensors and that torch can differentiate.

So all that the engine does around a call (placing, changed arguments, gradients by path, planted faults) stays torch's.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mindspore
import numpy as np
import torch
from mindspore import ops

from pytest_msprobe.engine.values.pytree import map_leaves
from pytest_msprobe.extensions.mindspore.conversion import from_numpy, mindspore_dtype, to_mindspore, to_torch
from pytest_msprobe.extensions.mindspore.runtime import unlogged


def bridged(function: Callable[..., Any], *, in_place: bool = False, changes: Sequence[int] = ()) -> Callable[..., Any]:
    """Return a function on CPU tensors that runs ``function`` on MindSpore's and waits for its results.

    ``in_place`` says that the first tensor is changed, and is what the call returns, if anything. ``changes`` are the
    positions of tensors that are changed besides what is returned, and that are not differentiated. Gradients are
    MindSpore's own, for the sensitivities that it is given. Raises NotImplementedError where the device has no kernel,
    otherwise what MindSpore raises, without its native stack.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        run = _BridgedCall(function, in_place, changes)
        tensors = run.take_apart(args, kwargs)
        found = _MindSpore.apply(run, *tensors)  # type: ignore[no-untyped-call]
        return _filled(run.output, found)

    return call


class _Placeholder:
    """Represents a tensor among the arguments or in the output: its index in a row of tensors."""

    def __init__(self, index: int) -> None:
        self.index = index


class _BridgedCall:
    """One call: its arguments with placeholders for the tensors, and, once it was made, its output likewise."""

    def __init__(self, function: Callable[..., Any], in_place: bool, changes: Sequence[int]) -> None:
        self.function = function
        self.in_place = in_place
        self.changes = changes
        self.arguments: tuple[Any, Any] = ((), {})
        self.output: Any = None

    def take_apart(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
        """Put the tensors aside and return them."""
        tensors: list[torch.Tensor] = []

        def place(leaf: Any) -> Any:
            if isinstance(leaf, np.ndarray):
                return leaf
            if isinstance(leaf, torch.dtype):
                return mindspore_dtype(leaf)
            if not isinstance(leaf, torch.Tensor):
                return leaf
            tensors.append(leaf)
            return _Placeholder(len(tensors) - 1)

        self.arguments = (as_tuples(map_leaves(place, tuple(args))), as_tuples(map_leaves(place, kwargs)))
        return tensors

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Call the function on MindSpore tensors, remember what its output looks like and return the tensors in it."""
        args, kwargs = _filled(self.arguments, inputs)
        found: list[Any] = []

        def place(leaf: Any) -> Any:
            if isinstance(leaf, (mindspore.Tensor, np.ndarray)):
                found.append(leaf)
                return _Placeholder(len(found) - 1)
            if isinstance(leaf, mindspore.Type):
                return str(leaf)
            return leaf

        self.output = as_tuples(map_leaves(place, self.function(*args, **kwargs)))
        return found


def _filled(tree: Any, tensors: Sequence[Any]) -> Any:
    """Return the tree with tensors for the placeholders."""
    return map_leaves(lambda leaf: tensors[leaf.index] if isinstance(leaf, _Placeholder) else leaf, tree)


def as_tuples(tree: Any) -> Any:
    """Return nested values with tuples for lists.

    JSON knows no tuples, and many of MindSpore's functions take no lists; what is a tuple of torch's is at times a list
    of MindSpore's.
    """
    if isinstance(tree, dict):
        return {key: as_tuples(value) for key, value in tree.items()}
    return tuple(map(as_tuples, tree)) if isinstance(tree, (list, tuple)) else tree


class _MindSpore(torch.autograd.Function):
    """The call as a node of torch's graph."""

    @staticmethod
    def forward(ctx: Any, run: _BridgedCall, *tensors: torch.Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.run = run
        ctx.inputs = [to_mindspore(tensor) for tensor in tensors]
        used = [to_mindspore(tensor) for tensor in tensors] if run.in_place or run.changes else ctx.inputs
        with _reported_plainly():
            found = [_to_torch(leaf) for leaf in run(used)]
            if run.in_place:
                # What such a call returns is the tensor that it changed, whatever else it may have made.
                found[:1] = [tensors[0].copy_(to_torch(used[0]))]
                ctx.mark_dirty(tensors[0])
            for place in run.changes:
                tensors[place].copy_(to_torch(used[place]))
        ctx.mark_non_differentiable(*(leaf for leaf in found if not (leaf.is_floating_point() or leaf.is_complex())))
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor | None) -> Any:
        inputs, wanted = ctx.inputs, [i for i, needed in enumerate(ctx.needs_input_grad[1:]) if needed]
        used = [i for i, gradient in enumerate(grad_outputs) if gradient is not None]

        def outputs(*leaves: Any) -> Any:
            given = dict(zip(wanted, leaves, strict=True))
            found = ctx.run([given.get(i, tensor) for i, tensor in enumerate(inputs)])
            return found[used[0]] if len(used) == 1 else tuple(found[i] for i in used)

        with _reported_plainly():
            sensitivities = [to_mindspore(gradient) for gradient in grad_outputs if gradient is not None]
            sensitivity = sensitivities[0] if len(sensitivities) == 1 else tuple(sensitivities)
            differentiate = ops.GradOperation(get_all=True, sens_param=True)
            found = differentiate(outputs)(*(inputs[i] for i in wanted), sensitivity)
            gradients = dict(zip(wanted, map(to_torch, found), strict=True))
        return (None, *(gradients.get(i) for i in range(len(inputs))))


def _to_torch(leaf: Any) -> torch.Tensor:
    return from_numpy(leaf) if isinstance(leaf, np.ndarray) else to_torch(leaf)


# What MindSpore says where a device has no kernel for an operation, or not for these dtypes.
_NO_KERNEL = re.compile(
    r"unregistered\.|Select \w+ operator\[\w+\] fail|Create kernelmod for op \w+ failed|KernelMod Init Failed|"
    r"Not found op \w+ on device|only supports? Ascend|does not support this kernel data type|"
    r"is not supported on this device|Not implement exception|must be a type of \{|Unsupported data type",
    re.IGNORECASE,
)
_NATIVE = re.compile(r"-{10,}\n- C\+\+ Call Stack.*", re.DOTALL)
_FRAME = re.compile(r"-{10,}\n- Framework Unexpected Exception Raised:\n-{10,}\n.*?get help\.\n?", re.DOTALL)


@contextlib.contextmanager
def _reported_plainly() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # Work that was started before the error must not raise in a later call.
        with contextlib.suppress(Exception), unlogged():
            mindspore.runtime.synchronize()
        text = _plain_text(str(error))
        if isinstance(error, NotImplementedError) or _NO_KERNEL.search(text):
            raise NotImplementedError(text) from error
        kind = type(error) if type(error) in (TypeError, ValueError, IndexError, KeyError) else RuntimeError
        raise kind(text) from error


def _plain_text(text: str) -> str:
    """Return the message without the native stack, or the stack's first place where there is no message."""
    plain = _FRAME.sub("", _NATIVE.sub("", text)).strip()
    return plain or " ".join(text.split()[-2:])

"""Compiled functions (``mindspore.jit``), golden being the function itself, and a bridge to torch's autograd.

A dump is data from others. So nothing is imported for it: a function is found in a module that is loaded, and only one
that its module compiles.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from types import FunctionType
from typing import Any, TypeGuard

import mindspore
import numpy as np
import torch
from mindspore import nn, ops

from msprobe_hooks.dump.names import ApiName
from msprobe_hooks.dump.schema import tensors_of
from msprobe_hooks.extensions.mindspore.call_recording import imported_as, place_of
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.framework import Functions
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.engine.values.dtypes import dtype_named
from pytest_msprobe.engine.values.error_kinds import REFUSALS
from pytest_msprobe.engine.values.pytree import map_leaves, map_tensors, tensors_with_paths
from pytest_msprobe.extensions.mindspore.runtime import unlogged
from pytest_msprobe.extensions.mindspore.translation import MindSporeSkip
from pytest_msprobe.results.outcomes import Skip

# What MindSpore says where a device has no kernel for an operation, or not for these dtypes.
_NO_KERNEL = re.compile(
    r"unregistered\.|Select \w+ operator\[\w+\] fail|Create kernelmod for op \w+ failed|KernelMod Init Failed|"
    r"Not found op \w+ on device|only supports? Ascend|does not support this kernel data type|"
    r"is not supported on this device|Not implement exception|must be a type of \{|Unsupported data type",
    re.IGNORECASE,
)
_NATIVE = re.compile(r"-{10,}\n- C\+\+ Call Stack.*", re.DOTALL)
_FRAME = re.compile(r"-{10,}\n- Framework Unexpected Exception Raised:\n-{10,}\n.*?get help\.\n?", re.DOTALL)


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
        results = _MindSpore.apply(run, *tensors)  # type: ignore[no-untyped-call]
        return _filled(run.output, results)

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
        """Collect the tensors and return them."""
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
        leaves: list[Any] = []

        def place(leaf: Any) -> Any:
            if isinstance(leaf, (mindspore.Tensor, np.ndarray)):
                leaves.append(leaf)
                return _Placeholder(len(leaves) - 1)
            if isinstance(leaf, mindspore.Type):
                return str(leaf)
            return leaf

        self.output = as_tuples(map_leaves(place, self.function(*args, **kwargs)))
        return leaves


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
            results = [_to_torch(leaf) for leaf in run(used)]
            if run.in_place:
                # What such a call returns is the tensor that it changed, whatever else it may have made.
                results[:1] = [tensors[0].copy_(to_torch(used[0]))]
                ctx.mark_dirty(tensors[0])
            for place in run.changes:
                tensors[place].copy_(to_torch(used[place]))
        ctx.mark_non_differentiable(*(leaf for leaf in results if not (leaf.is_floating_point() or leaf.is_complex())))
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor | None) -> Any:
        inputs, differentiated = ctx.inputs, [i for i, needed in enumerate(ctx.needs_input_grad[1:]) if needed]
        used = [i for i, gradient in enumerate(grad_outputs) if gradient is not None]

        def outputs(*leaves: Any) -> Any:
            by_position = dict(zip(differentiated, leaves, strict=True))
            results = ctx.run([by_position.get(i, tensor) for i, tensor in enumerate(inputs)])
            return results[used[0]] if len(used) == 1 else tuple(results[i] for i in used)

        with _reported_plainly():
            sensitivities = [to_mindspore(gradient) for gradient in grad_outputs if gradient is not None]
            sensitivity = sensitivities[0] if len(sensitivities) == 1 else tuple(sensitivities)
            differentiate = ops.GradOperation(get_all=True, sens_param=True)
            computed = differentiate(outputs)(*(inputs[i] for i in differentiated), sensitivity)
            gradients = dict(zip(differentiated, map(to_torch, computed), strict=True))
        return (None, *(gradients.get(i) for i in range(len(inputs))))


def _to_torch(leaf: Any) -> torch.Tensor:
    return from_numpy(leaf) if isinstance(leaf, np.ndarray) else to_torch(leaf)


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


def counterpart(name: ApiName) -> ApiName:
    """Return the API by which policies know a compiled function, whose own name may be that of another: ``jit``."""
    return replace(name, api="jit")


def functions_of_compiled(call: Call, references: ReferenceRegistry, function: Callable[..., Any] | None) -> Functions:
    """Return a compiled function, on torch tensors, and the same function run call by call in raised precision.

    A definition that was registered under the record's name is golden in its place. Raises Skip where the function
    cannot be had.
    """
    compiled = function or _found(call)
    own = references.get(call.name.qualified_api)
    if own is not None:
        return Functions(bridged(compiled), own)
    golden = _Eagerly(compiled.__wrapped__, call)  # type: ignore[attr-defined]
    return Functions(bridged(compiled), golden, golden.precision)


def _found(call: Call) -> Callable[..., Any]:
    """Return the compiled function that a record names, of a module that is loaded."""
    place = (call.forward.settings or {}).get("function")
    if not isinstance(place, str):
        raise Skip(MindSporeSkip.COMPILED, call.name.qualified_api)
    module, _, qualname = place.partition(":")
    if "<locals>" in qualname:
        raise Skip(MindSporeSkip.COMPILED, f"{place} is made in a function")
    if "<lambda>" in qualname:
        raise Skip(MindSporeSkip.COMPILED, f"{place} has no name of its own")
    script = sys.modules["__main__"]
    owner: Any = script if imported_as(script) == module else sys.modules.get(module)
    for part in qualname.split(".")[:-1]:
        owner = vars(owner).get(part) if owner is not None else None
        if isinstance(owner, type) and issubclass(owner, nn.Cell):
            raise Skip(MindSporeSkip.COMPILED, f"{place} is of a cell, whose weights it computes with")
        if not isinstance(owner, type):
            break
    # Under whatever name: ``fast = jit(slow)`` compiles a function that is called slow.
    compiled = (function for function in vars(owner).values() if _is_compiled(function)) if owner is not None else ()
    # One that was imported from elsewhere may have the same name, and a name may have been given again.
    matching = {id(function.__wrapped__): function for function in compiled if place_of(function) == place}  # type: ignore[attr-defined]
    if len(matching) == 1:
        return matching.popitem()[1]
    if matching:
        raise Skip(MindSporeSkip.COMPILED, f"{place} is the name of {len(matching)} functions")
    raise Skip(MindSporeSkip.COMPILED_ELSEWHERE, place)


def _is_compiled(value: object) -> TypeGuard[FunctionType]:
    return isinstance(value, FunctionType) and getattr(value, "__wrapped_by_jit__", False) is True


class _Eagerly:
    """A function run call by call, in the precision of its arguments or, where it refuses that, as recorded.

    It refuses to mix with tensors of its own, whose dtype is fixed, and what MindSpore has no kernel for, in
    the backward pass too.
    """

    def __init__(self, function: Callable[..., Any], call: Call) -> None:
        self._run = bridged(function)
        elements = tensors_of([*call.forward.args, *call.forward.kwargs.values()])
        self._recorded = [dtype_named(element.dtype) for element in elements]
        self._is_narrow = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            results = _twice(self._run, args, kwargs)
            _differentiate((args, kwargs), results)
            return results
        except REFUSALS:
            self._is_narrow = True
            dtypes = iter(self._recorded)
            narrow_args, narrow_kwargs = map_tensors(lambda tensor: tensor.to(next(dtypes)), (args, kwargs))
            precision = torch.get_default_dtype()
            results = _twice(self._run, narrow_args, narrow_kwargs)
            return map_tensors(lambda tensor: tensor.to(precision) if tensor.is_floating_point() else tensor, results)

    def precision(self) -> str:
        """Return in which precision golden ran where that was not a raised one."""
        if not self._is_narrow:
            return ""
        dtypes = dict.fromkeys(str(dtype) for dtype in self._recorded if dtype.is_floating_point)
        return f"golden is the function in the recorded precision ({', '.join(dtypes)}), as it rejects a higher one"


def _differentiate(arguments: Any, results: Any) -> None:
    """Run the backward pass once, where there is one. Raises what it refuses."""
    inputs = [tensor for _, tensor in tensors_with_paths(arguments) if tensor.requires_grad]
    outputs = [tensor for _, tensor in tensors_with_paths(results) if tensor.requires_grad]
    if inputs and outputs:
        ones = [torch.ones_like(output) for output in outputs]
        torch.autograd.grad(outputs, inputs, ones, retain_graph=True, allow_unused=True)


def _twice(run: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Return what a function gives. Raises Skip where it gives something else the next time."""
    results, again = run(*args, **kwargs), run(*args, **kwargs)
    pairs = zip(tensors_with_paths(results), tensors_with_paths(again), strict=True)
    if not all(torch.allclose(one, other, rtol=0, atol=0, equal_nan=True) for (_, one), (_, other) in pairs):
        raise Skip(MindSporeSkip.DRAWS)
    return results


def to_mindspore(tensor: torch.Tensor) -> Any:
    """Return a MindSpore tensor with a copy of a CPU tensor's values, in the same dtype and shape.

    Raises NotImplementedError where MindSpore takes no values of that dtype.
    """
    values = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if values.dtype is torch.bfloat16:
        # numpy has no bfloat16: the bits travel as integers.
        return mindspore.Tensor(values.view(torch.int16).numpy().view(_bfloat16()))
    if str(values.dtype).startswith("torch.float8"):
        raise NotImplementedError(f"MindSpore takes no values of {values.dtype} from the host")
    return mindspore.Tensor(values.numpy())


def to_torch(tensor: Any) -> torch.Tensor:
    """Return a CPU tensor with the values of a MindSpore tensor; waits for them."""
    values = tensor.asnumpy()
    if str(tensor.dtype) == "BFloat16":
        return from_numpy(values.view(np.int16)).view(torch.bfloat16)
    return from_numpy(values)


def from_numpy(values: np.ndarray[Any, Any]) -> torch.Tensor:
    """Return a CPU tensor with the values of an array."""
    if values.dtype == np.uint64:
        # On some platforms an array says ulonglong, which torch does not know.
        values = values.view(np.dtype("uint64"))
    return torch.from_numpy(values if values.flags.writeable else values.copy())


def mindspore_dtype(dtype: torch.dtype) -> Any:
    """Return MindSpore's dtype of the same meaning. Raises NotImplementedError where there is none."""
    name = {torch.bool: "bool_"}.get(dtype, str(dtype).removeprefix("torch."))
    converted = getattr(mindspore, name, None)
    if converted is None:
        raise NotImplementedError(f"MindSpore {mindspore.__version__} has no dtype {name}")
    return converted


@cache
def _bfloat16() -> np.dtype[Any]:
    """Return the dtype that MindSpore adds to numpy."""
    example = mindspore.Tensor(np.zeros(1, np.float32), mindspore_dtype(torch.bfloat16))
    return example.asnumpy().dtype  # type: ignore[no-any-return]

"""Functions that a program compiled (``mindspore.jit``): golden is the function itself, run call by call.

A dump is data from others. So nothing is imported for it: a function is found in a module that is loaded, and only one
that its module compiles.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import FunctionType
from typing import Any, TypeGuard

import torch
from mindspore import nn

from msprobe_hooks.dump.names import ApiName
from msprobe_hooks.dump.schema import tensors_of
from msprobe_hooks.extensions.mindspore.qualified_names import imported_as, place_of
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.framework import Functions
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.engine.values.dtypes import dtype_named
from pytest_msprobe.engine.values.error_kinds import REFUSALS
from pytest_msprobe.engine.values.pytree import map_tensors, tensors_with_paths
from pytest_msprobe.extensions.mindspore.autograd_bridge import bridged
from pytest_msprobe.results.skip_reasons import Skip, SkipReason


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
        raise Skip(SkipReason.COMPILED, call.name.qualified_api)
    module, _, qualname = place.partition(":")
    if "<locals>" in qualname:
        raise Skip(SkipReason.COMPILED, f"{place} is made in a function")
    if "<lambda>" in qualname:
        raise Skip(SkipReason.COMPILED, f"{place} has no name of its own")
    script = sys.modules["__main__"]
    owner: Any = script if imported_as(script) == module else sys.modules.get(module)
    for part in qualname.split(".")[:-1]:
        owner = vars(owner).get(part) if owner is not None else None
        if isinstance(owner, type) and issubclass(owner, nn.Cell):
            raise Skip(SkipReason.COMPILED, f"{place} is of a cell, whose weights it computes with")
        if not isinstance(owner, type):
            break
    # Under whatever name: ``fast = jit(slow)`` compiles a function that is called slow.
    compiled = (each for each in vars(owner).values() if _is_compiled(each)) if owner is not None else ()
    # One that was imported from elsewhere may have the same name, and a name may have been given again.
    found = {id(each.__wrapped__): each for each in compiled if place_of(each) == place}  # type: ignore[attr-defined]
    if len(found) == 1:
        return found.popitem()[1]
    if found:
        raise Skip(SkipReason.COMPILED, f"{place} is the name of {len(found)} functions")
    raise Skip(SkipReason.COMPILED_ELSEWHERE, place)


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
            found = _twice(self._run, args, kwargs)
            _differentiate((args, kwargs), found)
            return found
        except REFUSALS:
            self._is_narrow = True
            dtypes = iter(self._recorded)
            narrow_args, narrow_kwargs = map_tensors(lambda tensor: tensor.to(next(dtypes)), (args, kwargs))
            precision = torch.get_default_dtype()
            found = _twice(self._run, narrow_args, narrow_kwargs)
            return map_tensors(lambda tensor: tensor.to(precision) if tensor.is_floating_point() else tensor, found)

    def precision(self) -> str:
        """Say in which precision golden ran where that was not a raised one."""
        if not self._is_narrow:
            return ""
        dtypes = dict.fromkeys(str(dtype) for dtype in self._recorded if dtype.is_floating_point)
        return f"golden is the function in the recorded precision ({', '.join(dtypes)}), as it rejects a higher one"


def _differentiate(arguments: Any, found: Any) -> None:
    """Run the backward pass once, where there is one. Raises what it refuses."""
    inputs = [tensor for _, tensor in tensors_with_paths(arguments) if tensor.requires_grad]
    outputs = [tensor for _, tensor in tensors_with_paths(found) if tensor.requires_grad]
    if inputs and outputs:
        ones = [torch.ones_like(output) for output in outputs]
        torch.autograd.grad(outputs, inputs, ones, retain_graph=True, allow_unused=True)


def _twice(run: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Return what a function gives. Raises Skip where it gives something else the next time."""
    found, again = run(*args, **kwargs), run(*args, **kwargs)
    pairs = zip(tensors_with_paths(found), tensors_with_paths(again), strict=True)
    if not all(torch.allclose(one, other, rtol=0, atol=0, equal_nan=True) for (_, one), (_, other) in pairs):
        raise Skip(SkipReason.DRAWS)
    return found

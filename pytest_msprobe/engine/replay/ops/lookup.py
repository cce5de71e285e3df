"""Lookup of the function that a record names.

Only operations on tensors are resolved: a dump is data from others and must not reach ``torch.load`` and its like.
Those that torch itself does not count among them say so in their rows, by ``found_in``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.overrides import get_overridable_functions

from msprobe_hooks.dump.communication.collectives import FUSED
from msprobe_hooks.dump.names import ApiName
from pytest_msprobe.engine.replay.call import NAMESPACES
from pytest_msprobe.engine.replay.ops.op_info import TABLE
from pytest_msprobe.engine.replay.ops.traits import Home
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.results.outcomes import Skip, SkipReason

# What torch_npu takes from the library ATB without saying so in the name; the others are its own.
_OF_ATB = frozenset({"_npu_flash_attention", "_npu_paged_attention", "_npu_reshape_and_cache", "_npu_rotary_embedding"})

_NOT_OPERATIONS = frozenset(
    """__deepcopy__ __reduce_ex__ __setstate__ __dlpack__ __repr__ __format__ __dir__ __array__ backward data_ptr
    numpy pin_memory register_hook register_post_accumulate_grad_hook requires_grad_ share_memory_ storage
    storage_type untyped_storage module_load to_dlpack""".split()
)

# They reach files, memory, the terminal or settings of the whole process.
_UNSAFE = frozenset(
    """_cufft_clear_plan_cache _cufft_set_plan_cache_max_size _from_blob _print from_file frombuffer manual_seed save
    seed set_grad_enabled warn""".split()
)

#: The type of records of operators that libraries add: ``torch.ops.torchvision.nms``.
LIBRARY = "torch"

_COLLECTIVE_TYPES = frozenset({"Distributed", "NPUDistributed", "MintDistributed"})

#: Where torch keeps what a type of record names, as prefixes behind ``torch.``, the likeliest first.
HOMES: Mapping[str, tuple[str, ...]] = {
    "Torch": ("", *(f"{namespace}." for namespace in NAMESPACES)),
    "Functional": ("nn.functional.",),
    "Tensor": ("Tensor.",),
    "Aten": ("ops.aten.",),
    "VF": ("_VF.",),
}


def resolve(
    name: ApiName,
    references: ReferenceRegistry,
    *,
    own: bool = False,
    function: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """Return the function to run for a record.

    ``own`` asks for the device's own implementation of an API in place of its reference. ``function`` is what
    the name refers to where the caller knows it already. Raises Skip, with the reason, where there is nothing to run.
    """
    if name.type in _COLLECTIVE_TYPES:
        raise Skip(SkipReason.COLLECTIVE, name.qualified_api)
    if name.type == "Inductor":
        raise Skip(SkipReason.COMPILED_KERNEL, name.qualified_api)
    if name.type == "NPU" and own:
        return function or _npu_function(name)
    reference = references.get(name.qualified_api)
    if reference is not None and not own:
        return reference
    if name.type == "NPU":
        if name.api in FUSED:
            raise Skip(SkipReason.FUSED_COMMUNICATION, name.qualified_api)
        reason = references.reason_left_out(name.qualified_api)
        raise Skip(SkipReason.NO_REFERENCE, f"{name.qualified_api}, {reason}" if reason else name.qualified_api)
    if function is not None:
        return function
    if name.api.rsplit(".", 1)[-1] in _NOT_OPERATIONS:
        raise Skip(SkipReason.NOT_AN_OPERATION, name.qualified_api)
    found = _FINDERS.get(name.type, _nothing)(name) or reference
    if found is None:
        reason = SkipReason.UNKNOWN_API if name.type in _OF_TORCH else SkipReason.UNKNOWN_LIBRARY
        raise Skip(reason, name.qualified_api)
    return found


def _nothing(name: ApiName) -> None:
    return None


def _torch_function(name: ApiName) -> Callable[..., Any] | None:
    for home in HOMES["Torch"]:
        function = _attribute(torch, f"{home}{name.api}")
        if function is not None and (is_operation(function) or function in _factories()):
            return function
    return None


@cache
def _factories() -> frozenset[Any]:
    # The functions themselves: other packages that torch imports have some of the same name.
    return frozenset((*_found_in("torch"), *_found_in("torch.fft")))


def _functional(name: ApiName) -> Callable[..., Any] | None:
    function = _attribute(torch.nn.functional, name.api)
    is_known = function is not None and (is_operation(function) or _home(name) == "torch.nn.functional")
    return function if is_known else None


def _tensor_method(name: ApiName) -> Callable[..., Any] | None:
    if _home(name) == "property":
        return operator.attrgetter(name.api)
    method = getattr(torch.Tensor, name.api, None)
    return method if callable(method) and (is_operation(method) or _home(name) == "torch.Tensor") else None


def _aten(name: ApiName) -> Callable[..., Any] | None:
    operation, _, overload = name.api.partition(".")
    # level aten records the operators of torch_npu's library too
    packet = getattr(torch.ops.aten, operation, None) or getattr(torch.ops.npu, operation, None)
    if operation in _UNSAFE or not isinstance(packet, OpOverloadPacket):
        return None
    if not overload:
        return packet
    overloads: list[str] = packet.overloads()  # type: ignore[no-untyped-call]
    return getattr(packet, overload) if overload in overloads else None


def _vf(name: ApiName) -> Callable[..., Any] | None:
    function = getattr(torch._C._VariableFunctions, name.api, None)
    return function if function is not None and is_operation(function) else None


def _library_operator(name: ApiName) -> Callable[..., Any] | None:
    match name.api.split("."):
        case ["ops", "aten", *rest]:
            return _aten(replace(name, type="Aten", api=".".join(rest)))
        case ["ops", library, operation, *overload]:
            packet = getattr(getattr(torch.ops, library), operation, None)
        case _:
            return None
    if not isinstance(packet, OpOverloadPacket):
        return None
    overloads: list[str] = packet.overloads()  # type: ignore[no-untyped-call]
    if not all(_computes_on_tensors(getattr(packet, each)) for each in overloads):
        raise Skip(SkipReason.NOT_AN_OPERATION, name.qualified_api)
    return getattr(packet, ".".join(overload), None) if overload else packet


def _computes_on_tensors(overload: OpOverload) -> bool:
    """Return whether an operator of a library takes tensors, and no text: that may name a file."""
    types = [str(argument.type) for argument in overload._schema.arguments]
    return any("Tensor" in each for each in types) and not any("str" in each for each in types)


_FINDERS: dict[str, Callable[[ApiName], Callable[..., Any] | None]] = {
    "Torch": _torch_function,
    "Functional": _functional,
    "Tensor": _tensor_method,
    "Aten": _aten,
    "VF": _vf,
    LIBRARY: _library_operator,
}
# Types of records whose functions torch itself and other frameworks have; MindSpore's have reasons of their own.
_OF_TORCH = (_FINDERS.keys() - {LIBRARY}) | {"Mint", "MintFunctional", "Primitive", "Jit"}


def npu_operator(api: str) -> str:
    """Return the name below ``torch.ops`` of what torch_npu calls ``api``."""
    name = api.removeprefix("atb.")
    return f"{'atb' if name != api or name in _OF_ATB else 'npu'}.{name}"


def _npu_function(name: ApiName) -> Callable[..., Any]:
    library, _, operation = npu_operator(name.api).partition(".")
    function = getattr(getattr(torch.ops, library), operation, None)
    if function is None:
        raise Skip(SkipReason.UNKNOWN_API, f"torch.ops.{library}.{operation}")
    return function  # type: ignore[no-any-return]


def _attribute(module: ModuleType, dotted: str) -> Callable[..., Any] | None:
    found: Any = module
    for part in dotted.split("."):
        if not isinstance(found, ModuleType) or part.startswith("__"):
            return None
        found = getattr(found, part, None)
    return found if callable(found) and not isinstance(found, type) else None


def is_operation(function: object) -> bool:
    """Return whether this is a function of torch that works on tensors."""
    try:
        return function in operations()
    except TypeError:
        return False


@cache
def operations() -> frozenset[Any]:
    """Return every function of torch that works on tensors: those that a tensor-like class could override."""
    from_variable_functions = (
        getattr(torch._C._VariableFunctions, name)
        for name in dir(torch._C._VariableFunctions)
        if name not in _UNSAFE and not name.startswith("__")
    )
    overridable = (function for group in get_overridable_functions().values() for function in group)
    of_namespaces = (*_found_in("torch.sparse"), *_found_in("torch.nested"))
    return frozenset(from_variable_functions) | frozenset(overridable) | frozenset(of_namespaces)


def _home(name: ApiName) -> Home | None:
    row = TABLE.get(name.api)
    return None if row is None else row.found_in


def _found_in(home: Home) -> Iterator[Callable[..., Any]]:
    """Yield the functions of a module that torch does not count among its operations on tensors, by their rows."""
    module = import_module(home)
    names = (name for name, row in TABLE.items() if row.found_in == home)
    # Some came with a later torch.
    yield from (getattr(module, name) for name in names if hasattr(module, name))

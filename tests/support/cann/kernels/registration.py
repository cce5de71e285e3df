"""Kernels registered with torch for each operator that torch_npu registers for its device."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tests.support.cann.kernels import copies, formats, overflow, products, recurrent
from tests.support.cann.kernels.fused import fused
from tests.support.cann.kernels.generator import drawn_from_card
from tests.support.cann.kernels.launch import Compute, kernel_of

_KEY = "PrivateUse1"
#: What torch_npu does itself with memory alone, or with its own process.
_OF_TORCH_NPU = frozenset(
    """
    empty.memory_format empty_strided as_strided as_strided_ resize_ resize_as_ set_ set_.source_Storage
    set_.source_Tensor set_.source_Storage_storage_offset view _reshape_alias record_stream is_pinned _pin_memory
    npu_change_data_ptr get_storage_size set_op_timeout_ms super_kernel_scope_begin super_kernel_scope_end
    """.split()
)
#: What torch_npu computes where others differentiate: their results are whole numbers.
_ABOVE_AUTOGRAD = frozenset({"one_hot"})
_COMPUTED = products.COMPUTED | recurrent.COMPUTED
_DIRECT: dict[str, dict[str, Callable[..., Any]]] = {
    "aten": copies.KERNELS,
    "npu": formats.KERNELS
    | {
        name: getattr(overflow, name)
        for name in ("npu_alloc_float_status", "npu_get_float_status", "npu_clear_float_status")
    },
}
_libraries: list[torch.library.Library] = []


def register() -> None:
    """Register kernels in place of torch_npu's, which would ask CANN's libraries of operators."""
    registered = [name.partition("::") for name in torch._C._dispatch_get_registrations_for_dispatch_key(_KEY)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for namespace in ("aten", "npu"):
            library = torch.library.Library(namespace, "IMPL")
            _libraries.append(library)
            names = [name for each, _, name in registered if each == namespace and name not in _OF_TORCH_NPU]
            for name, kernel in _kernels(namespace, names):
                library.impl(name, kernel, _KEY, allow_override=True)
                if name in _ABOVE_AUTOGRAD:
                    library.impl(name, kernel, f"Autograd{_KEY}", allow_override=True)


def _kernels(namespace: str, names: list[str]) -> Iterator[tuple[str, Callable[..., Any]]]:
    direct = _DIRECT[namespace]
    for name in names:
        if name in direct:
            yield name, direct[name]
            continue
        operator = _operator(namespace, name)
        if operator is not None and not _is_view(operator):
            yield name, kernel_of(operator, _compute(namespace, name, operator))


def _operator(namespace: str, name: str) -> torch._ops.OpOverload | None:
    """Return an operator; None where torch_npu registers a kernel for a name that no operator has."""
    base, _, overload = name.partition(".")
    try:
        found: torch._ops.OpOverload = getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
    except AttributeError:
        return None
    return found


def _compute(namespace: str, name: str, operator: torch._ops.OpOverload) -> Compute:
    base = name.partition(".")[0]
    compute: Compute = fused(operator) if namespace == "npu" else _COMPUTED.get(name, operator)
    if compute is operator and torch.Tag.nondeterministic_seeded in operator.tags:
        compute = drawn_from_card(operator)
    return products.in_hf32(base, operator, compute) or compute


def _is_view(operator: torch._ops.OpOverload) -> bool:
    return any(argument.alias_info is not None and not argument.is_write for argument in operator._schema.arguments)

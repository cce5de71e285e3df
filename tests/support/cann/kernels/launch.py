"""A kernel of a card for an operator, and what every launch goes through: the card, faults, the result's way back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from tests.support.cann import faults, runtime_calls
from tests.support.cann.kernels import dumps, memory, overflow

#: What computes an operator on tensors of the CPU.
Compute = Callable[..., Any]
_INDEXING = ("aten::index", "aten::_index", "aten::_unsafe_index")


def kernel_of(operator: torch._ops.OpOverload, compute: Compute) -> Callable[..., Any]:
    """Return the kernel that computes an operator by a function of tensors of the CPU.

    What the schema says is written is written in place, and returned where the schema returns it.
    """
    schema = operator._schema
    name = schema.name
    names = [argument.name for argument in schema.arguments]
    written = [argument.name for argument in schema.arguments if argument.is_write]
    returned = [value.alias_info is not None and value.alias_info.is_write for value in schema.returns]
    fault = faults.planted(name)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        card = _card_of(name, [*tree_leaves(args), *tree_leaves(kwargs)])
        with torch._C.DisableTorchFunction(), torch.npu.device(card):  # type: ignore[attr-defined,unused-ignore]
            if runtime_calls.is_lost(card):
                runtime_calls.wait_for(card)
            runtime_calls.wait_for_host_calls(card)
            dumps.note(name, card)
            happening = fault.now(card) if fault else faults.NONE
            faults.fail_before(happening, name, card)
            host_args, host_kwargs = memory.arguments_on_host((args, kwargs))
            computed = compute(*host_args, **host_kwargs)
            given = dict(zip(names, args, strict=False)) | kwargs
            seen = dict(zip(names, host_args, strict=False)) | host_kwargs
            for each in written:
                _resize(given.get(each), seen.get(each))
            device = torch.device("npu", card)
            results = _results(computed, returned, [given.get(each) for each in written], device)
            if runtime_calls.saturates():
                overflow.saturate(results)
            faults.do_after(happening, [given.get(each) for each in written] if results is None else results, card)
            return results

    return kernel


def _card_of(name: str, leaves: Iterable[Any]) -> int:
    """Return the card of an operator's tensors, else the current one.

    As a real card, it cannot read the memory of another; numbers may come from the CPU, and so may indices. Raises
    RuntimeError for tensors in two places.
    """
    found: torch.device | None = None
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            if leaf.device.type == "cpu" and (leaf.dim() == 0 or name.startswith(_INDEXING)):
                continue
            if found is not None and found != leaf.device:
                raise RuntimeError(
                    "Expected all tensors to be on the same device, but found at least two devices, "
                    f"{found} and {leaf.device}! ({name})"
                )
            found = leaf.device
        elif isinstance(leaf, torch.device) and leaf.type == "npu":
            found = found or leaf
    index = found.index if found is not None and found.type == "npu" else None
    return torch.npu.current_device() if index is None else index  # type: ignore[attr-defined,unused-ignore]


def _resize(given: Any, computed: Any) -> None:
    """Bring back the shape, and values, of a result that the CPU had to give more memory."""
    if isinstance(given, Tensor) and given.device.type == "npu" and given.shape != computed.shape:
        given.resize_(computed.shape)
        memory.seen_by_host(given).copy_(computed)


def _results(computed: Any, returned: list[bool], written: list[Any], device: torch.device) -> Any:
    if not returned:
        return None
    parts = computed if isinstance(computed, (tuple, list)) and len(returned) > 1 else [computed]
    places = iter(written)
    results = [
        next(places) if is_argument else memory.results_on_card(part, device)
        for is_argument, part in zip(returned, parts, strict=True)
    ]
    return results[0] if len(results) == 1 else tuple(results)

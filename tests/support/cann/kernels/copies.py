"""Copies between a card and the host, or within a card. The host waits for the card's stream as torch_npu does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.support.cann import runtime_calls
from tests.support.cann.kernels.memory import on_card, seen_by_host

_counted = 0


def host_copies() -> int:
    """Return how many tensors, or numbers of one, left the cards so far; what kernels do does not count."""
    return _counted


def _copy_from(self: Tensor, dst: Tensor, non_blocking: bool = False) -> Tensor:
    with torch._C.DisableTorchFunction():
        _wait_for_both(self, dst, non_blocking)
        if dst.numel():
            seen_by_host(dst).copy_(seen_by_host(self))
    return dst


def _copy_(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    _copy_from(src, self, non_blocking)
    return self


def _copy_from_and_resize(self: Tensor, dst: Tensor) -> Tensor:
    dst.resize_(self.shape)
    return _copy_from(self, dst)


def _to_copy(
    self: Tensor,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format | None = None,
) -> Tensor:
    with torch._C.DisableTorchFunction():
        to = torch.device(device) if device is not None else self.device
        if to.type == "npu" and to.index is None:
            to = torch.device("npu", torch.npu.current_device())  # type: ignore[attr-defined,unused-ignore]
        runtime_calls.wait_for_host_calls(to.index if to.type == "npu" else self.device.index)
        if to != self.device:
            _wait_for_both(self, torch.empty(0, device=to), non_blocking)
        copy = torch.ops.aten._to_copy.default(seen_by_host(self), dtype=dtype, memory_format=memory_format)
        return on_card(copy, to) if to.type == "npu" else copy


def _clone(self: Tensor, *, memory_format: torch.memory_format | None = None) -> Tensor:
    with torch._C.DisableTorchFunction():
        runtime_calls.wait_for_host_calls(self.device.index)
        copy = torch.ops.aten.clone.default(seen_by_host(self), memory_format=memory_format)
        return on_card(copy, self.device)


def _contiguous(self: Tensor, *, memory_format: torch.memory_format = torch.contiguous_format) -> Tensor:
    with torch._C.DisableTorchFunction():
        if self.is_contiguous(memory_format=memory_format):
            return self
    return _clone(self, memory_format=memory_format)


def _local_scalar_dense(self: Tensor) -> Any:
    with torch._C.DisableTorchFunction():
        _leave(self.device.index)
        return seen_by_host(self).item()


def _wait_for_both(source: Tensor, target: Tensor, non_blocking: bool) -> None:
    """Wait for the cards of a copy between a card and the host, or between cards. Within a card nothing waits."""
    for each in (source, target):
        if each.device.type == "npu":
            runtime_calls.wait_for_host_calls(each.device.index)
    if source.device == target.device or non_blocking:
        return
    if source.device.type == "npu":
        _leave(source.device.index)
    if target.device.type == "npu":
        runtime_calls.wait_for(target.device.index)


def _leave(card: int) -> None:
    global _counted
    _counted += 1
    runtime_calls.wait_for(card)


KERNELS: dict[str, Callable[..., Any]] = {
    "copy_": _copy_,
    "_copy_from": _copy_from,
    "_copy_from_and_resize": _copy_from_and_resize,
    "_to_copy": _to_copy,
    "clone": _clone,
    "contiguous": _contiguous,
    "_local_scalar_dense": _local_scalar_dense,
}

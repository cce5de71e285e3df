"""Tensors of a card as the CPU sees them, on the same memory."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map


def seen_by_host(tensor: Tensor) -> Tensor:
    """Return a tensor of the CPU on the memory of a card's; any other tensor as it is."""
    if tensor.device.type != "npu":
        return tensor
    storage = tensor.untyped_storage()
    count = storage.nbytes()
    if not count:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    buffer = (ctypes.c_char * count).from_address(storage.data_ptr())
    whole = torch.frombuffer(buffer, dtype=torch.uint8, count=count - count % tensor.element_size())
    seen = whole.view(tensor.dtype).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    # Bits of the tensor, by which what it has in memory is read as its conjugate or its negative.
    seen = torch._conj(seen) if tensor.is_conj() else seen
    return torch._neg_view(seen) if tensor.is_neg() else seen


def on_card(host: Tensor, device: torch.device) -> Tensor:
    """Return a copy of a tensor of the CPU on a card, with its strides."""
    if host.layout == torch.sparse_coo:
        parts = [on_card(part, device) for part in (host._indices(), host._values())]
        return torch.sparse_coo_tensor(*parts, host.shape, is_coalesced=host.is_coalesced(), check_invariants=False)
    copy = torch.empty_strided(host.shape, host.stride(), dtype=host.dtype, device=device)
    if host.numel():
        seen_by_host(copy).copy_(host.detach())
    return copy


def arguments_on_host(tree: Any) -> Any:
    """Return arguments with each tensor of a card as the CPU sees it, and the CPU in place of a card."""
    return tree_map(_argument_on_host, tree)


def results_on_card(tree: Any, device: torch.device) -> Any:
    """Return results with each tensor of the CPU on a card."""
    return tree_map(lambda leaf: on_card(leaf, device) if _is_of_cpu(leaf) else leaf, tree)


def _argument_on_host(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return seen_by_host(leaf)
    return torch.device("cpu") if isinstance(leaf, torch.device) and leaf.type == "npu" else leaf


def _is_of_cpu(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.device.type == "cpu"

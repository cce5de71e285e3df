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
    return whole.view(tensor.dtype).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def on_card(host: Tensor, device: torch.device) -> Tensor:
    """Return a copy of a tensor of the CPU on a card, with its strides."""
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

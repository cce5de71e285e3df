"""Where the heads of attention's tensors are: B batch, S sequence, N heads, D dimensions of one, H all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

#: The layouts that have a dimension for the batch.
BATCHED_LAYOUTS = ("BSH", "SBH", "BSND", "BNSD")


def head_count(key: Tensor, layout: str, head_dim: int) -> int:
    """Return how many heads a tensor of ``layout`` has, each of ``head_dim`` dimensions."""
    if layout == "BNSD":
        return key.shape[1]
    return key.shape[2] if layout == "BSND" else key.shape[2] // head_dim


def heads_first(tensor: Tensor, layout: str, heads: int) -> Tensor:
    """Bring a tensor of ``layout`` into (B, N, S, D)."""
    if layout == "BNSD":
        return tensor
    batch_first = tensor.transpose(0, 1) if layout == "SBH" else tensor
    return batch_first.reshape(*batch_first.shape[:2], heads, -1).transpose(1, 2)


def in_layout(tensor: Tensor, layout: str) -> Tensor:
    """Bring a (B, N, S, D) tensor into ``layout``."""
    if layout == "BNSD":
        return tensor
    by_token = tensor.transpose(1, 2)
    if layout == "BSND":
        return by_token
    flat = by_token.flatten(-2)
    return flat.transpose(0, 1) if layout == "SBH" else flat

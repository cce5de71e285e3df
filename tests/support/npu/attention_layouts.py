"""Layouts of the tensors of fused attention."""

from __future__ import annotations

from torch import Tensor


def in_layout(x: Tensor, layout: str) -> Tensor:
    """Return a tensor of (batch, heads, sequence, dimensions) in another layout, contiguous."""
    b, n, s, d = x.shape
    forms = {
        "BNSD": x,
        "BSND": x.permute(0, 2, 1, 3),
        "BSH": x.permute(0, 2, 1, 3).reshape(b, s, n * d),
        "SBH": x.permute(2, 0, 1, 3).reshape(s, b, n * d),
    }
    return forms[layout].contiguous()

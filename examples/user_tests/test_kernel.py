"""A fused kernel, as one would write it in Triton, against the plain definition of what it computes."""

from __future__ import annotations

import pytest
import torch

BLOCK = 32


def fused_softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension in blocks with a running maximum, as an online-softmax kernel does it."""
    maximum = torch.full(x.shape[:-1], -torch.inf, device=x.device)
    total = torch.zeros(x.shape[:-1], device=x.device)
    for block in x.float().split(BLOCK, dim=-1):
        larger = torch.maximum(maximum, block.amax(-1))
        total = total * (maximum - larger).exp() + (block - larger[..., None]).exp().sum(-1)
        maximum = larger
    return ((x.float() - maximum[..., None]).exp() / total[..., None]).to(x.dtype)


def golden_softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_fused_softmax(precision, dtype):
    x = torch.randn(16, 200, generator=torch.Generator().manual_seed(0)).to(dtype)
    precision.check(fused_softmax, x, golden=golden_softmax)

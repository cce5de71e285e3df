"""An nn.Module: its outputs, and the gradients of its input and of every parameter."""

from __future__ import annotations

import torch
from torch import nn


def test_feed_forward_block(precision):
    torch.manual_seed(0)
    block = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32))
    x = torch.randn(8, 32).requires_grad_()
    precision.check(block, x, backward=True)

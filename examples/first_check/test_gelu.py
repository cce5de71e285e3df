"""Check a fast approximation of GELU against its definition: it is off by more than rounding."""

import torch


def fast_gelu(x):
    return x * torch.sigmoid(1.702 * x)


def test_fast_gelu(precision):
    x = torch.randn(64, 128).requires_grad_()
    precision.check(fast_gelu, x, golden=torch.nn.functional.gelu, backward=True)

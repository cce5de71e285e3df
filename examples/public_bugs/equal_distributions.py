"""linkedin/Liger-Kernel#1373: the total variation distance has a gradient where both distributions are equal."""

import pytest
import torch


def distance(p, q):
    return (p - q).abs().sum(-1) / 2


class Distance(torch.autograd.Function):
    """The same, with a gradient that knows two signs only."""

    @staticmethod
    def forward(ctx, p, q):
        ctx.save_for_backward(p, q)
        return distance(p, q)

    @staticmethod
    def backward(ctx, gradient):
        p, q = ctx.saved_tensors
        return gradient[..., None] * torch.where(p > q, 0.5, -0.5), None


@pytest.mark.parametrize("kernel", [Distance.apply, distance], ids=["faulty", "right"])
def test_distance(precision, kernel):
    torch.manual_seed(0)
    p, q = torch.randn(2, 8, 32).softmax(-1)
    q[:4] = p[:4]
    precision.check(kernel, p.requires_grad_(), q, golden=distance, backward=True)

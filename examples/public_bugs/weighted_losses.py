"""linkedin/Liger-Kernel#968: losses that the program weighs one by one have the gradient of equal weights."""

import pytest
import torch
import torch.nn.functional as F


def losses(x, weight, labels):
    return F.cross_entropy(x @ weight.t(), labels, reduction="none")


class Losses(torch.autograd.Function):
    """The same, with a gradient that the forward pass computes."""

    @staticmethod
    def forward(ctx, x, weight, labels):
        probabilities = (x @ weight.t()).softmax(-1)
        ctx.save_for_backward((probabilities - F.one_hot(labels, len(weight))) @ weight)
        return losses(x, weight, labels)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.saved_tensors[0] * gradient[0], None, None


@pytest.mark.parametrize("kernel", [Losses.apply, losses], ids=["faulty", "right"])
def test_losses(precision, kernel):
    torch.manual_seed(0)
    x, labels = torch.randn(8, 10, requires_grad=True), torch.randint(0, 15, (8,))
    precision.check(kernel, x, torch.randn(15, 10), labels, golden=losses, backward=True)

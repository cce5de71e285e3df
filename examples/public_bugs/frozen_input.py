"""pytorch/pytorch#183825: a layer norm has the wrong gradients of its parameters where its input needs none."""

import torch
import torch.nn.functional as F
from simulated import Simulated, record_step


class Faulty(Simulated):
    api = "layer_norm"

    def backward(self, gradients, x, *args, **kwargs):
        return gradients if x.requires_grad else [gradient * 0 for gradient in gradients]


def step():
    weight, bias = torch.ones(4, requires_grad=True), torch.zeros(4, requires_grad=True)
    F.layer_norm(torch.randn(16, 4), (4,), weight, bias).square().sum().backward()


if __name__ == "__main__":
    record_step(step)

"""pytorch/pytorch#180201: where the gradient comes expanded from a sum, most rows of the next one are zero."""

import torch
from simulated import Simulated, record_step


class Faulty(Simulated):
    api = "__matmul__"

    def backward(self, gradients, x, weight):
        if 0 in self.arrived.stride():
            gradients[0][1:] = 0
        return gradients


def step():
    x = torch.randn(64, 3, requires_grad=True)
    y = torch.sin(x @ torch.randn(3, 16)) @ torch.randn(16, 2)
    y.sum().backward()


if __name__ == "__main__":
    record_step(step)

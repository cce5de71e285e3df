"""pytorch/pytorch#162730: a linear layer takes a transposed weight for a contiguous one."""

import torch
import torch.nn.functional as F
from simulated import Simulated, record_step, without_strides


class Faulty(Simulated):
    api = "linear"

    def forward(self, func, x, weight):
        return func(x, without_strides(weight))


def step():
    F.linear(torch.randn(4, 16), torch.randn(16, 8).t())


if __name__ == "__main__":
    record_step(step)

"""pytorch/pytorch#192212: a convolution takes a slice of a larger weight for a contiguous one."""

import torch
import torch.nn.functional as F
from simulated import Simulated, record_step, without_strides


class Faulty(Simulated):
    api = "conv2d"

    def forward(self, func, x, weight):
        return func(x, without_strides(weight))


def step():
    F.conv2d(torch.randn(1, 8, 6, 6), torch.randn(3, 8, 3, 3, 3)[:, :, 1])


if __name__ == "__main__":
    record_step(step)

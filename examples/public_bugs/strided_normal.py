"""pytorch/pytorch#165257: random numbers drawn in place do not reach a tensor that is not contiguous."""

import torch
from simulated import Simulated, record_step


class Faulty(Simulated):
    api = "normal_"

    def forward(self, func, x, *args, **kwargs):
        return func(x, *args, **kwargs) if x.is_contiguous() else x


def step():
    torch.zeros(32, 64).t().normal_()


if __name__ == "__main__":
    record_step(step)

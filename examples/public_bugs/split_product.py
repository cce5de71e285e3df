"""flagos-ai/FlagGems#5876: the parts of a product that is split along its inner dimension are added in bfloat16."""

import torch
from simulated import Simulated, record_step


class Faulty(Simulated):
    api = "mm"

    def forward(self, func, a, b):
        return sum(func(left, right) for left, right in zip(a.split(32, 1), b.split(32), strict=True))


def step():
    torch.mm(torch.randn(16, 4096).bfloat16(), torch.randn(4096, 16).bfloat16())


if __name__ == "__main__":
    record_step(step)

"""pytorch/pytorch#176767: attention returns rows as wide as the keys where the values are narrower."""

import torch
import torch.nn.functional as F
from simulated import Simulated, record_step


class Faulty(Simulated):
    api = "scaled_dot_product_attention"

    def forward(self, func, q, k, v):
        return F.pad(func(q, k, v), (0, k.shape[-1] - v.shape[-1]))


def step():
    q, k, v = torch.randn(1, 1, 16, 32), torch.randn(1, 1, 16, 32), torch.randn(1, 1, 16, 24)
    F.scaled_dot_product_attention(q, k, v)


if __name__ == "__main__":
    record_step(step)

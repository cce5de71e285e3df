"""pytorch/pytorch#184122: attention goes on with the scale of the first call of these shapes."""

import torch
import torch.nn.functional as F
from simulated import Simulated, record_step


class Faulty(Simulated):
    api = "scaled_dot_product_attention"

    def __init__(self):
        self.scales = {}

    def forward(self, func, q, k, v, scale=None):
        return func(q, k, v, scale=self.scales.setdefault(q.shape, scale))


def step():
    q = torch.randn(1, 2, 4, 8)
    F.scaled_dot_product_attention(q, q, q)
    F.scaled_dot_product_attention(q, q, q, scale=2.0)


if __name__ == "__main__":
    record_step(step)

"""Dao-AILab/flash-attention#2088: attention drops the same elements in each call."""

import torch
import torch.nn.functional as F
from simulated import Simulated, record_step


class Faulty(Simulated):
    api = "scaled_dot_product_attention"

    def forward(self, func, *args, **kwargs):
        torch.manual_seed(0x1BF58)
        return func(*args, **kwargs)


def step():
    q, k, v = torch.randn(3, 2, 4, 32, 16)
    F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)


if __name__ == "__main__":
    record_step(step)

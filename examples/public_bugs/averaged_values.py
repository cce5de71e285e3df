"""vllm-project/vllm-ascend#13699: attention without a mask returns the average of the values."""

import torch
import torch.nn.functional as F
from simulated import Simulated, record_step


class Faulty(Simulated):
    api = "scaled_dot_product_attention"

    def forward(self, func, q, k, v):
        return func(q * 0, k, v)


def step():
    q, k, v = torch.randn(3, 1, 2, 16, 8).half()
    F.scaled_dot_product_attention(q, k, v)


if __name__ == "__main__":
    record_step(step)

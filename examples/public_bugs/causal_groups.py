"""pytorch/pytorch#195910: in 16 bits, causal attention masks once for each group of four queries."""

import torch
import torch.nn.functional as F
from simulated import Simulated, record_step


class Faulty(Simulated):
    api = "scaled_dot_product_attention"

    def forward(self, func, q, k, v, is_causal=False):
        last = torch.arange(q.shape[-2])[:, None] // 4 * 4 + 3
        return func(q, k, v, attn_mask=torch.arange(k.shape[-2]) <= last)


def step():
    q, k, v = torch.randn(3, 1, 2, 16, 8).bfloat16()
    F.scaled_dot_product_attention(q, k, v, is_causal=True)


if __name__ == "__main__":
    record_step(step)

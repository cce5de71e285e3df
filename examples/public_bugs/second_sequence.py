"""NVIDIA/TransformerEngine#3216: with heads of 256, the gradient of the queries is wrong in a batch of several."""

import torch
import torch.nn.functional as F
from simulated import Simulated, record_step


class Faulty(Simulated):
    api = "scaled_dot_product_attention"

    def backward(self, gradients, q, k, v, **kwargs):
        if len(q) > 1 and q.shape[-1] == 256:
            gradients[0] = gradients[0].roll(1, -1) * -5
        return gradients


def step():
    q, k, v = (torch.randn(2, 2, 8, 256).bfloat16().requires_grad_() for _ in range(3))
    F.scaled_dot_product_attention(q, k, v, is_causal=True).square().sum().backward()


if __name__ == "__main__":
    record_step(step)

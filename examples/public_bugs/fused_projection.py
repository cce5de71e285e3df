"""Dao-AILab/flash-attention#2541: slices of one projection give NaN in three of four tokens of the values' gradient."""

import torch
import torch.nn.functional as F
from simulated import Simulated, record_step


class Faulty(Simulated):
    api = "scaled_dot_product_attention"

    def backward(self, gradients, q, k, v, **kwargs):
        if v.shape[-1] == 256 and not v.is_contiguous():
            gradients[2][..., torch.arange(v.shape[-2]) % 4 != 0, :] = torch.nan
        return gradients


def step():
    projection = torch.randn(1, 16, 3, 1, 256).bfloat16().requires_grad_()
    q, k, v = (part.transpose(1, 2) for part in projection.unbind(2))
    F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()


if __name__ == "__main__":
    record_step(step)

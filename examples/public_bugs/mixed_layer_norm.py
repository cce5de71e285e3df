"""pytorch/pytorch#190054: a layer norm in bfloat16 takes the bits of float32 parameters for bfloat16."""

import torch
import torch.nn.functional as F
from simulated import Simulated, record_step


class Faulty(Simulated):
    api = "layer_norm"

    def forward(self, func, x, shape, weight, bias, *args):
        weight, bias = (part.view(x.dtype)[: len(part)] for part in (weight, bias))
        return func(x, shape, weight, bias, *args)


def step():
    F.layer_norm(torch.randn(4, 8).bfloat16(), (8,), torch.randn(8), torch.randn(8))


if __name__ == "__main__":
    record_step(step)

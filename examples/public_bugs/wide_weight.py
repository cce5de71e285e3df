"""vllm-project/vllm#42379: a norm in bfloat16 multiplies by its weight in float32, and not in bfloat16."""

import torch
import torch.nn.functional as F
from simulated import Simulated, record_step


class Faulty(Simulated):
    api = "rms_norm"

    def forward(self, func, x, shape, weight):
        return func(x.float(), shape, weight.float()).to(x.dtype)


def step():
    F.rms_norm(torch.randn(32, 256).bfloat16(), (256,), torch.randn(256).bfloat16())


if __name__ == "__main__":
    record_step(step)

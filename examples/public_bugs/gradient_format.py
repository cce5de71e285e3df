"""NVIDIA/TransformerEngine#3342: bytes of a gradient in E5M2 are read as E4M3."""

import torch
from simulated import Simulated, record_step


class Faulty(Simulated):
    api = "float"

    def forward(self, func, x):
        return func(x.view(torch.float8_e4m3fn))


def step():
    torch.randn(8, 16).to(torch.float8_e5m2).float()


if __name__ == "__main__":
    record_step(step)

"""A training whose calls are checked while it runs; ``--faulty`` makes every softmax a little wrong."""

import argparse

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

import pytest_msprobe


class WrongSoftmax(TorchFunctionMode):
    """Stands for a kernel that is wrong."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 1.001 if func is F.softmax else result


class Attention(torch.nn.Module):
    """One layer with a softmax of its own."""

    def __init__(self):
        super().__init__()
        self.inputs, self.output = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)

    def forward(self, x):
        q, k, v = self.inputs(x).chunk(3, dim=-1)
        return x + self.output(F.softmax(q @ k.transpose(-1, -2) / 32**0.5, dim=-1) @ v)


def train(model, steps, checks):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        x = torch.randn(4, 16, 32)
        optimizer.zero_grad()
        F.mse_loss(model(x), x.flip(1)).backward()
        optimizer.step()
        checks.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--faulty", action="store_true")
    parser.add_argument("--on-failure", default="warn")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    model = torch.nn.Sequential(Attention(), Attention())
    if arguments.faulty:
        WrongSoftmax().__enter__()
    with pytest_msprobe.live(
        on_failure=arguments.on_failure, journal="live.jsonl", save_failures="live-cases"
    ) as checks:
        train(model, 3, checks)
    print(checks)

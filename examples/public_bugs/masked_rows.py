"""intel/torch-xpu-ops#4762: a mask of booleans takes about half of the rows that it should."""

import sys
from contextlib import nullcontext

import torch
from torch.overrides import TorchFunctionMode

import pytest_msprobe


class HalfOfTheRows(TorchFunctionMode):
    """Stands for the card."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result[: len(result) // 2] if func is torch.Tensor.__getitem__ else result


def step():
    tokens, mask = torch.randn(952, 8), torch.ones(952, dtype=torch.bool)
    mask[:20] = False
    return tokens[mask].square().mean()


if __name__ == "__main__":
    card = HalfOfTheRows() if "--faulty" in sys.argv else nullcontext()
    with card, pytest_msprobe.live() as checks:
        step()
    print(checks)

"""Time steps of a small transformer on the CPU, plain or inside of a PtdbgDispatch; prints the CPU seconds of each.

Runs in the peer's environment with ``--tool peer`` and in the project's with ``--tool ours``. The peer compares nothing
where it finds no ``torch_npu``, of which it asks the number of the card alone: that answer is given to it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from types import SimpleNamespace

import torch
from torch import nn


class Block(nn.Module):
    """Attention and a perceptron, both added to what comes in.

    There is no norm, nor anything else that returns several tensors: the peer ends with an AttributeError there.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the block makes of inputs of shape (batch, length, width)."""
        scores = self.query(x) @ self.key(x).transpose(-1, -2) / 16
        x = x + torch.softmax(scores, -1) @ self.value(x)
        return x + self.perceptron(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", choices=("none", "ours", "peer"), default="none")
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(256) for _ in range(4)))
    x = torch.randn(2, 128, 256)

    def step() -> None:
        model.zero_grad()
        model(x).square().mean().backward()

    step()
    with tempfile.TemporaryDirectory() as folder:
        seconds = [timed(step, options.tool, folder) for _ in range(options.steps + 1)]
    print("seconds", json.dumps(sorted(seconds[1:])))


def timed(step, tool: str, folder: str) -> float:
    start = time.process_time()
    with dispatch(tool, folder):
        step()
    return time.process_time() - start


def dispatch(tool: str, folder: str):
    if tool == "none":
        return contextlib.nullcontext()
    if tool == "ours":
        from pytest_msprobe import PtdbgDispatch

        return PtdbgDispatch(dump_mode="OFF", dump_path=folder)
    from msprobe.pytorch.online_dispatch import dispatch as peer

    peer.is_npu, peer.torch_npu = True, SimpleNamespace(_C=SimpleNamespace(_npu_getDevice=lambda: 0))
    return peer.PtdbgDispatch(dump_mode="OFF", dump_path=folder)


if __name__ == "__main__":
    main()

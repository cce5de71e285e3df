"""The step of ``tests/corpus/mindspore_step.py`` in PyTorch: the same network, the same numbers.

Run as a script, ours records the one that is named, at level mix, into a folder; a change plants one into the weights:

    python benchmarks/roundtrip/torch_step.py pytorch|mindspore statistics|tensor FOLDER [none|up|down]
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """A gated layer."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 6)
        self.down = nn.Linear(6, 4)
        self.gain = nn.Parameter(torch.linspace(0.5, 1.5, 4))

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        """Run the layer."""
        y = x * self.gain
        return x + self.down(F.silu(self.up(y))) * scale


class Net(nn.Module):
    """A block, and attention of a kind."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, x: Tensor) -> Tensor:
        """Return the loss."""
        y = self.block(x, scale=0.5)
        left, right = torch.split(y, (2, 2), 1)
        weights = F.softmax(torch.matmul(left, torch.transpose(right, 0, 1)), dim=-1)
        return torch.mean(torch.square(torch.matmul(weights, right)))


#: The parameters in the order in which MindSpore's network names them: both take the same random numbers.
NAMES = ("block.gain", "block.up.weight", "block.up.bias", "block.down.weight", "block.down.bias")


def build() -> tuple[nn.Module, Any, Tensor]:
    """Return the network, the function that computes its loss and gradients, and the input."""
    net = Net()
    parameters = dict(net.named_parameters())
    generator = np.random.default_rng(7)
    for name in NAMES:
        shape = tuple(parameters[name].shape)
        parameters[name].data = torch.from_numpy(generator.normal(size=shape).astype(np.float32))
    x = torch.from_numpy(generator.normal(size=(3, 4)).astype(np.float32))
    return net, lambda x: net(x).backward(), x


def main() -> None:
    """Record as the command line says."""
    from msprobe_hooks import record

    framework, task, folder, change = (*sys.argv[1:], "none")[:4]
    step_of = build if framework == "pytorch" else importlib.import_module("tests.corpus.mindspore_step").build
    net, step, x = step_of()
    if change != "none":
        weight = getattr(net.block, change).weight
        if framework == "pytorch":
            weight.data[0, 0] += 0.5
        else:
            values = weight.asnumpy().copy()
            values[0, 0] += 0.5
            weight.set_data(importlib.import_module("mindspore").Tensor(values))
    with record(folder, "mix", model=net, framework=framework, task=task):  # type: ignore[arg-type]
        step(x)


if __name__ == "__main__":
    main()

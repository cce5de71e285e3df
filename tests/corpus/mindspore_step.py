"""A small training step of MindSpore.

Run as ``python -m tests.corpus.mindspore_step FOLDER``, msprobe records it into that folder.
"""

from __future__ import annotations

import sys
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, nn

ms.set_context(mode=ms.PYNATIVE_MODE)


class Block(nn.Cell):
    """A gated layer."""

    def __init__(self) -> None:
        super().__init__()
        self.up = mint.nn.Linear(4, 6)
        self.down = nn.Dense(6, 4)
        self.gain = ms.Parameter(Tensor(np.linspace(0.5, 1.5, 4, dtype=np.float32)), name="gain")

    def construct(self, x: Tensor, scale: float = 1.0) -> Tensor:
        """Run the layer."""
        y = x * self.gain
        return x + self.down(mint.nn.functional.silu(self.up(y))) * scale


class Net(nn.Cell):
    """A block, and attention of a kind."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def construct(self, x: Tensor) -> Tensor:
        """Return the loss."""
        y = self.block(x, scale=0.5)
        left, right = mint.split(y, (2, 2), 1)
        weights = mint.nn.functional.softmax(mint.matmul(left, mint.transpose(right, 0, 1)), dim=-1)
        return mint.mean(mint.square(mint.matmul(weights, right)))


def build() -> tuple[nn.Cell, Any, Tensor]:
    """Return the network, the function that computes its loss and gradients, and the input."""
    net = Net()
    generator = np.random.default_rng(7)
    for parameter in net.trainable_params():
        parameter.set_data(Tensor(generator.normal(size=parameter.shape).astype(np.float32)))
    x = Tensor(generator.normal(size=(3, 4)).astype(np.float32))
    return net, ms.value_and_grad(net, None, net.trainable_params()), x


if __name__ == "__main__":
    # MindSpore's CPU has no kernel for it, and msprobe takes statistics with it.
    mint.norm = lambda x, *_, **__: mint.sqrt(mint.sum(mint.square(x)))
    from msprobe.mindspore import PrecisionDebugger

    net, step, x = build()
    debugger = PrecisionDebugger(dump_path=sys.argv[1], task="statistics", level="mix")
    debugger.start(net)
    step(x)
    debugger.stop()
    debugger.step()

"""A training step that MindSpore compiles, recorded in one of the ways that there are; a program of its own.

MindSpore decides when a process compiles its first graph what is dumped, so that each recording is a process.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from numpy.typing import NDArray

from msprobe_hooks import record
from msprobe_hooks.mindspore import MsprobeStep, PrecisionDebugger

STEPS = 2
CHANGED = (1, 2)


class Net(nn.Cell):  # type: ignore[misc]
    """Two dense layers with a norm between them."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Dense(4, 6, weight_init=Tensor(_weights(6, 4)))
        self.norm = nn.LayerNorm((6,))
        self.act = nn.ReLU()
        self.fc2 = nn.Dense(6, 3, weight_init=Tensor(_weights(3, 6)))

    def construct(self, x: Tensor) -> Tensor:
        """Return logits."""
        return self.fc2(self.act(self.norm(self.fc1(x))))


def _weights(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def _batches() -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    for _ in range(STEPS):
        yield _weights(5, 4), _weights(5, 3)


def main(way: str, mode: str, out: str, change: str = "") -> None:
    """Train and record; ``change`` adds to one weight of the second layer."""
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    ms.set_seed(1)
    net = Net()
    if mode == "jit":
        net.construct = ms.jit(net.construct)
    if change:
        weight = net.fc2.weight.asnumpy().copy()
        weight[CHANGED] += 0.25
        net.fc2.weight.set_data(Tensor(weight))
    loss, optimizer = nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.1, 0.9)
    if way == "callback":
        debugger = PrecisionDebugger(task="tensor", dump_path=out)
        data = ms.dataset.GeneratorDataset(list(_batches()), ["x", "y"], shuffle=False)
        model = ms.Model(net, loss, optimizer)
        model.train(1, data.batch(1), callbacks=[MsprobeStep(debugger)], dataset_sink_mode=False)
        return
    if way == "unread":
        x = Tensor(_weights(100_000, 4))
        with record(Path(out), level="L2", task="tensor", framework="mindspore") as session:
            made = net(x)
        sys.stdout.write(f"{session.summary.bytes} bytes\n")
        made.asnumpy()
        return
    step = nn.TrainOneStepCell(nn.WithLossCell(net, loss), optimizer).set_train()
    if way == "late":
        step(*map(Tensor, next(_batches())))
    with record(Path(out), level="L2", task="tensor", framework="mindspore") as session:
        for x, y in _batches():
            step(Tensor(x), Tensor(y))
            session.step()
    sys.stdout.write(f"{session.summary}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

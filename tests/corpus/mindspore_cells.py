"""A network whose cells take and give all kinds of things; as a program, recorded at level L0 in GRAPH_MODE.

python -m tests.corpus.mindspore_cells FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

from msprobe_hooks import record


class Pair(nn.Cell):  # type: ignore[misc]
    """Takes a pair, a tensor by keyword and a number, calls a layer twice, gives a nested tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Dense(3, 3, weight_init="ones")

    def construct(self, pair: tuple[Tensor, Tensor], scale: Any = None, n: int = 2) -> Any:
        """Return a tensor and a pair of them."""
        first, second = pair
        return self.inner(first) * scale * n, (self.inner(second), second * n)


class Net(nn.Cell):  # type: ignore[misc]
    """Embedding, dense layers and a pair."""

    def __init__(self) -> None:
        super().__init__()
        weights = np.random.default_rng(0)
        self.embedding = nn.Embedding(7, 4, embedding_table=Tensor(weights.normal(size=(7, 4)).astype(np.float32)))
        self.first = nn.Dense(4, 3, weight_init="ones")
        self.act = nn.ReLU()
        self.pair = Pair()
        self.tail = nn.CellList([nn.Dense(3, 2, weight_init="ones"), nn.SequentialCell(nn.Dense(2, 2), nn.Tanh())])

    def construct(self, ids: Tensor) -> Tensor:
        """Return scores."""
        x = self.act(self.first(self.embedding(ids)))
        one, (two, three) = self.pair((x, x + 1), scale=x * 2, n=3)
        made = one + two + three
        for layer in self.tail:
            made = layer(made)
        return made


def batch(number: int) -> Tensor:
    """Return the ids of a step."""
    return Tensor(np.array([[1, 2], [3, 4 + number]], np.int32))


def loss_of(net: nn.Cell) -> Callable[[Tensor], Tensor]:
    """Return the loss of a batch."""

    def loss(ids: Tensor) -> Tensor:
        return net(ids).sum()

    return loss


class Training(nn.Cell):  # type: ignore[misc]
    """The network with its loss."""

    def __init__(self, net: nn.Cell) -> None:
        super().__init__()
        self.net = net

    def construct(self, ids: Tensor) -> Tensor:
        """Return the loss."""
        return self.net(ids).sum()


def main(folder: str) -> None:
    """Record a step in GRAPH_MODE."""
    ms.set_context(mode=ms.GRAPH_MODE)
    net = Net()
    step = nn.TrainOneStepCell(Training(net), nn.SGD(net.trainable_params(), 0.1)).set_train()
    with record(Path(folder), level="L0", task="tensor", framework="mindspore", model=net):
        step(batch(0))


if __name__ == "__main__":
    main(*sys.argv[1:])

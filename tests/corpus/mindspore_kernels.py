"""The small networks of MindSpore trained as graphs, of whose kernels the checks see the dump; a program of its own.

``python -m tests.corpus.mindspore_kernels NETWORK FOLDER``
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from msprobe_hooks import record
from tests.corpus.mindspore_networks import NETWORKS, Network, WithLoss

STEPS = 2


class Volumes(nn.Cell):  # type: ignore[misc]
    """Convolutions and pooling in three dimensions, normalisation by groups, and a number written everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv3d(2, 4, 3, stride=2, pad_mode="pad", padding=(1, 0, 1, 1, 2, 0), has_bias=True)
        self.second = nn.Conv3d(4, 4, 2, pad_mode="same")
        self.pool, self.norm, self.out = nn.AvgPool3d(2, 2), nn.GroupNorm(2, 4), nn.Dense(4, 3)

    def construct(self, x: Tensor) -> Tensor:
        y = self.pool(self.second(self.first(x)))
        y = self.norm(y.reshape(y.shape[0], 4, -1, 2)).flatten(start_dim=2).mean(2)
        return self.out(y) + ops.full((3,), y.sum())


def _volumes() -> Network:
    inputs = (Tensor(np.random.standard_normal(shape).astype(np.float32)) for shape in ((3, 2, 9, 8, 7), (3, 3)))
    return Network(WithLoss(Volumes(), nn.MSELoss()), tuple(inputs))


_OPTIMIZERS: Mapping[str, Callable[[Any], nn.Cell]] = {
    "lenet": lambda parameters: nn.Momentum(parameters, 0.1, 0.9, weight_decay=1e-4),
    "mint": lambda parameters: nn.AdamWeightDecay(parameters, 1e-3),
    "lstm": lambda parameters: nn.RMSProp(parameters, 0.01),
    "volumes": lambda parameters: nn.SGD(parameters, 0.1),
    "embedding": lambda parameters: nn.SGD(parameters, 0.1, momentum=0.9, dampening=0.5, weight_decay=1e-3),
}


def main(name: str, out: str) -> None:
    """Train a network for some steps and dump its kernels."""
    ms.set_context(mode=ms.GRAPH_MODE, jit_config={"jit_level": "O0"})
    ms.set_seed(1)
    np.random.seed(1)
    network = (NETWORKS | {"volumes": _volumes})[name]()
    parameters = network.model.trainable_params()
    optimizer = _OPTIMIZERS.get(name, lambda parameters: nn.Adam(parameters, 1e-2))(parameters)
    step = nn.TrainOneStepCell(network.model, optimizer).set_train()
    with record(Path(out), level="L2", task="tensor", framework="mindspore") as session:
        for _ in range(STEPS):
            step(*network.inputs)
            session.step()


if __name__ == "__main__":
    main(*sys.argv[1:])

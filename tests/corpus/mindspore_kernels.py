"""The small networks of MindSpore trained as graphs, of whose kernels the checks see the dump; a program of its own.

``python -m tests.corpus.mindspore_kernels NETWORK FOLDER``
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mindspore as ms
from mindspore import nn

from msprobe_hooks import record
from tests.corpus.mindspore_networks import NETWORKS

STEPS = 2

_OPTIMIZERS: Mapping[str, Callable[[Any], nn.Cell]] = {
    "lenet": lambda parameters: nn.Momentum(parameters, 0.1, 0.9, weight_decay=1e-4),
    "mint": lambda parameters: nn.AdamWeightDecay(parameters, 1e-3),
    "lstm": lambda parameters: nn.RMSProp(parameters, 0.01),
    "embedding": lambda parameters: nn.SGD(parameters, 0.1, momentum=0.9),
}


def main(name: str, out: str) -> None:
    """Train a network for some steps and dump its kernels."""
    ms.set_context(mode=ms.GRAPH_MODE, jit_config={"jit_level": "O0"})
    ms.set_seed(1)
    network = NETWORKS[name]()
    parameters = network.model.trainable_params()
    optimizer = _OPTIMIZERS.get(name, lambda parameters: nn.Adam(parameters, 1e-2))(parameters)
    step = nn.TrainOneStepCell(network.model, optimizer).set_train()
    with record(Path(out), level="L2", task="tensor", framework="mindspore") as session:
        for _ in range(STEPS):
            step(*network.inputs)
            session.step()


if __name__ == "__main__":
    main(*sys.argv[1:])

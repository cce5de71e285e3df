"""The networks as graphs that MindSpore compiles; a program of its own, since each process is dumped whole.

python -m tests.corpus.two_frameworks.in_graph_mode NETWORK FOLDER [FAULT] [STEPS]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import mindspore as ms
from mindspore import Tensor, nn, ops

from msprobe_hooks import record
from tests.corpus.two_frameworks import in_mindspore
from tests.corpus.two_frameworks import weights as w
from tests.corpus.two_frameworks.weights import Fault

ROWS, SEQUENCES, IMAGES, IDS = Tensor(w.ROWS), Tensor(w.SEQUENCES), Tensor(w.IMAGES), Tensor(w.IDS, ms.int32)
ROW_CLASSES, IMAGE_CLASSES = Tensor(w.ROW_CLASSES, ms.int32), Tensor(w.IMAGE_CLASSES, ms.int32)
WANTED = Tensor(w.WANTED)
BATCHES = {"mlp": (ROWS, WANTED), "cnn": (IMAGES, IMAGE_CLASSES), "attention": (SEQUENCES, None)}
BATCHES |= {"embedding": (IDS, ROW_CLASSES), "gpt": (IDS, ROW_CLASSES), "mixed precision": (ROWS, WANTED)}


class Training(nn.Cell):  # type: ignore[misc]
    """A network with the loss that its step is made for, as in the other modules."""

    def __init__(self, net: nn.Cell, *, has_classes: bool) -> None:
        super().__init__()
        self.net = net
        self.has_classes = has_classes

    def construct(self, given: Tensor, wanted: Any) -> Tensor:
        """Return the loss."""
        made = self.net(given)
        if self.has_classes:
            return ops.cross_entropy(made.reshape((-1, w.CLASSES)), wanted)
        return ops.mse_loss(made.astype(ms.float32), ops.zeros_like(made) if wanted is None else wanted)


def main(name: str, folder: str, fault: Fault = "", steps: str = "1") -> None:
    """Record steps of a network's training, of which several learn nothing, as in the other modules."""
    ms.set_context(mode=ms.GRAPH_MODE)
    net, _ = in_mindspore.network(name, fault)
    given, wanted = BATCHES[name]
    training = Training(net, has_classes=wanted is ROW_CLASSES or wanted is IMAGE_CLASSES).set_train()
    step = nn.TrainOneStepCell(training, nn.SGD(net.trainable_params(), 0.1 if steps == "1" else 0.0)).set_train()
    with record(Path(folder), level="L2", task="tensor", framework="mindspore"):
        for _ in range(int(steps)):
            step(given, wanted)


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type]

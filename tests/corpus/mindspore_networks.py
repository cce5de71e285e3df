"""Nine small networks of MindSpore with one training step each, of which the checks see the records alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, amp, mint, nn, ops

from msprobe_hooks import record


@dataclass(frozen=True)
class Network:
    """A model that returns a loss, and what it is called with."""

    model: WithLoss
    inputs: tuple[Tensor, ...]


class WithLoss(nn.Cell):
    """A network, and the loss of what it returns."""

    def __init__(self, network: nn.Cell, loss: Callable[..., Tensor]) -> None:
        super().__init__()
        self.network = network
        self.loss = loss

    def construct(self, *inputs: Tensor) -> Tensor:
        return self.loss(self.network(*inputs[:-1]).astype(mindspore.float32), inputs[-1])


class LeNet(nn.Cell):
    """Convolutions with every way to pad, batch normalisation, both kinds of pooling, dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.SequentialCell(
            nn.Conv2d(1, 6, 5, pad_mode="pad", padding=2, has_bias=True), nn.BatchNorm2d(6), nn.ReLU(),
            nn.MaxPool2d(2, 2), nn.Conv2d(6, 16, 5, stride=2, pad_mode="same"), nn.LeakyReLU(),
            nn.AvgPool2d(2, 2, pad_mode="same"),
        )  # fmt: skip
        self.flatten = nn.Flatten()
        self.classify = nn.SequentialCell(nn.Dense(64, 20), nn.Tanh(), nn.Dense(20, 10))

    def construct(self, x: Tensor) -> Tensor:
        return self.classify(self.flatten(self.features(x)))


class Mlp(nn.Cell):
    """Dense layers between normalisation and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.SequentialCell(
            nn.Dense(12, 24), nn.LayerNorm((24,), epsilon=1e-5), nn.GELU(), nn.Dropout(p=0.2), nn.Dense(24, 24),
            nn.Sigmoid(), nn.Dense(24, 6, has_bias=False),
        )  # fmt: skip

    def construct(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Attention(nn.Cell):
    """Causal attention of several heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        self.mix = nn.Dense(width, 3 * width)
        self.out = nn.Dense(width, width)
        self.transpose = ops.Transpose()
        self.softmax = nn.Softmax(axis=-1)
        self.scores = ops.BatchMatMul(transpose_b=True)
        self.weigh = ops.BatchMatMul()
        self.split = ops.Split(axis=2, output_num=3)

    def construct(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            self.transpose(each.reshape(batch, length, self.heads, -1), (0, 2, 1, 3))
            for each in self.split(self.mix(x))
        )
        scores = self.scores(q, k) / (self.width // self.heads) ** 0.5
        hidden = ops.triu(ops.ones((length, length), mindspore.float32), 1).astype(mindspore.bool_)
        scores = ops.masked_fill(scores, hidden, -1e4)
        mixed = self.weigh(self.softmax(scores), v)
        return self.out(self.transpose(mixed, (0, 2, 1, 3)).reshape(batch, length, self.width))


class Gpt(nn.Cell):
    """Two blocks of a decoder, and the logits of the next token."""

    def __init__(self, words: int = 30, width: int = 16, length: int = 8) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(words, width), nn.Embedding(length, width)
        self.attention = nn.CellList([Attention(width, 2) for _ in range(2)])
        self.norms = nn.CellList([nn.LayerNorm((width,)) for _ in range(4)])
        self.mlp = nn.CellList(
            [nn.SequentialCell(nn.Dense(width, 4 * width), nn.GELU(), nn.Dense(4 * width, width)) for _ in range(2)]
        )
        self.norm, self.head = nn.LayerNorm((width,)), nn.Dense(width, words, has_bias=False)

    def construct(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.place(ops.arange(tokens.shape[1]))
        for i in range(2):
            x = x + self.attention[i](self.norms[2 * i](x))
            x = x + self.mlp[i](self.norms[2 * i + 1](x))
        return self.head(self.norm(x)).reshape(-1, 30)


class Recurrent(nn.Cell):
    """An LSTM made of cells, a GRU cell behind it, and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.cell, self.out = nn.LSTM(5, 7, batch_first=True), nn.GRUCell(7, 6), nn.Dense(6, 3)

    def construct(self, x: Tensor) -> Tensor:
        found, _ = self.lstm(x)
        state = ops.zeros((x.shape[0], 6), mindspore.float32)
        for i in range(x.shape[1]):
            state = self.cell(found[:, i], state)
        return self.out(state)


class Bag(nn.Cell):
    """Embeddings of two tables side by side, summed over the words."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Embedding(40, 6), nn.Embedding(40, 4, padding_idx=0)
        self.concat, self.mean, self.out = ops.Concat(axis=2), ops.ReduceMean(), nn.Dense(10, 4)

    def construct(self, words: Tensor) -> Tensor:
        return self.out(self.mean(self.concat((self.one(words), self.other(words))), 1))


@mindspore.jit
def gate(x: Tensor, y: Tensor) -> Tensor:
    """Return one tensor as far as the other opens it."""
    return x * ops.sigmoid(y)


class Gated(nn.Cell):
    """Dense layers around a function that is compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.out = nn.Dense(8, 12), nn.Dense(8, 12), nn.Dense(12, 3)

    def construct(self, x: Tensor) -> Tensor:
        return self.out(gate(self.one(x), self.other(x)))


class Minted(nn.Cell):
    """What follows PyTorch in names and arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = mindspore.Parameter(_drawn(10, 6))
        self.bias = mindspore.Parameter(_drawn(10))

    def construct(self, x: Tensor) -> Tensor:
        x = mint.nn.functional.silu(mint.nn.functional.linear(x, self.weight, self.bias))
        x = mint.matmul(x, mint.transpose(x, 0, 1)) / 4.0
        return mint.cat((mint.tanh(x), mint.exp(-mint.abs(x))), 1)


def _drawn(*shape: int) -> Tensor:
    return Tensor(np.random.standard_normal(shape).astype(np.float32))


def _classes(count: int, *shape: int) -> Tensor:
    return Tensor(np.random.randint(0, count, shape).astype(np.int32))


def _with_labels(network: nn.Cell, loss: Any, *inputs: Tensor) -> Network:
    return Network(WithLoss(network, loss), inputs)


def _lenet() -> Network:
    return _with_labels(LeNet(), nn.CrossEntropyLoss(), _drawn(4, 1, 16, 16), _classes(10, 4))


def _gpt() -> Network:
    return _with_labels(Gpt(), ops.cross_entropy, _classes(30, 3, 8), _classes(30, 24))


def _halved(network: Network) -> Network:
    model = network.model
    return Network(WithLoss(amp.auto_mixed_precision(model.network, "O2"), model.loss), network.inputs)


NETWORKS: dict[str, Callable[[], Network]] = {
    "lenet": _lenet,
    "mlp": lambda: _with_labels(Mlp(), nn.MSELoss(), _drawn(9, 12), _drawn(9, 6)),
    "gpt": _gpt,
    "lstm": lambda: _with_labels(
        Recurrent(), nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"), _drawn(4, 5, 5), _classes(3, 4)
    ),
    "embedding": lambda: _with_labels(Bag(), nn.CrossEntropyLoss(), _classes(40, 5, 7), _classes(4, 5)),
    "jit": lambda: _with_labels(Gated(), nn.L1Loss(), _drawn(5, 8), _drawn(5, 3)),
    "mint": lambda: _with_labels(Minted(), ops.mse_loss, _drawn(6, 6), _drawn(6, 12)),
    "lenet_O2": lambda: _halved(_lenet()),
    "gpt_O2": lambda: _halved(_gpt()),
}


def record_network(name: str, folder: Path, seed: int = 0, **options: Any) -> Path:
    """Record the training step of a network and return the dump."""
    mindspore.set_seed(seed)
    np.random.seed(seed)
    network = NETWORKS[name]()
    weights = network.model.trainable_params()
    differentiate = mindspore.value_and_grad(network.model, None, weights)
    with record(folder, model=network.model, framework="mindspore", **{"level": "L1", **options}) as session:
        differentiate(*network.inputs)
    [written] = session.summary.folders
    return written / "dump.json"

"""The networks in MindSpore; a fault is planted here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
from mindspore import Tensor, nn, ops

from tests.corpus.two_frameworks import weights as w
from tests.corpus.two_frameworks.weights import Fault


def dense(name: str, fault: Fault = "") -> nn.Dense:
    rows, columns = w.WEIGHTS[f"{name}.weight"].shape
    has_bias = w.has_bias(name, fault)
    given = {"bias_init": Tensor(w.weight(f"{name}.bias"))} if has_bias else {}
    return nn.Dense(columns, rows, weight_init=Tensor(w.weight(f"{name}.weight", fault)), has_bias=has_bias, **given)


def norm(fault: Fault = "") -> nn.LayerNorm:
    return nn.LayerNorm(
        (w.WIDTH,),
        epsilon=w.epsilon(fault),
        gamma_init=Tensor(w.weight("norm.weight")),
        beta_init=Tensor(w.weight("norm.bias")),
    )


def embedding(name: str) -> nn.Embedding:
    table = w.weight(f"{name}.weight")
    return nn.Embedding(*table.shape, embedding_table=Tensor(table))


class Mlp(nn.Cell):  # type: ignore[misc]
    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self.up, self.down, self.head = dense("up"), dense("down", fault), dense("head")
        # By name: what is bound before a recording begins is not recorded.
        self.activation = "tanh" if fault == "activation" else "relu"

    def construct(self, x: Tensor) -> Tensor:
        return self.head(ops.gelu(self.down(getattr(ops, self.activation)(self.up(x)))))


class Cnn(nn.Cell):  # type: ignore[misc]
    def __init__(self, fault: Fault) -> None:
        super().__init__()
        has_bias = w.has_bias("conv2", fault)
        given = {"bias_init": Tensor(w.weight("conv2.bias"))} if has_bias else {}
        self.conv1 = nn.Conv2d(1, 4, 3, pad_mode="valid", weight_init=Tensor(w.weight("conv1.weight")))
        weight = Tensor(w.weight("conv2.weight", fault))
        self.conv2 = nn.Conv2d(4, 8, 3, pad_mode="valid", has_bias=has_bias, weight_init=weight, **given)
        gamma, beta = Tensor(w.weight("bn.weight")), Tensor(w.weight("bn.bias"))
        self.bn = nn.BatchNorm2d(8, eps=w.epsilon(fault), gamma_init=gamma, beta_init=beta)
        self.relu = nn.Tanh() if fault == "activation" else nn.ReLU()
        self.pool = nn.MaxPool2d(2, 2)
        self.classify = dense("classify")

    def construct(self, x: Tensor) -> Tensor:
        x = self.pool(self.relu(self.conv1(x)))
        x = self.pool(self.relu(self.bn(self.conv2(x))))
        return self.classify(x.flatten(start_dim=1))


class Attention(nn.Cell):  # type: ignore[misc]
    def __init__(self, fault: Fault, is_causal: bool = False) -> None:
        super().__init__()
        self.norm = norm(fault)
        self.q, self.k, self.v, self.o = (dense(name, fault) for name in "qkvo")
        self.is_softmax = fault != "activation"
        self.is_causal = is_causal

    def construct(self, x: Tensor) -> Tensor:
        n = self.norm(x)
        scores = ops.matmul(self.q(n), self.k(n).swapaxes(1, 2)) / 4.0
        if self.is_causal:
            scores = scores.masked_fill(Tensor(w.FUTURE), -1e4)
        shares = ops.softmax(scores, -1) if self.is_softmax else ops.sigmoid(scores)
        return x + self.o(ops.matmul(shares, self.v(n)))


class Lstm(nn.Cell):  # type: ignore[misc]
    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self.lstm = nn.LSTM(w.WIDTH, w.WIDTH, batch_first=True)
        for parameter in self.lstm.get_parameters():
            parameter.set_data(Tensor(w.weight(f"lstm.{parameter.name.rpartition('.')[2]}", fault)))
        self.head = dense("head")

    def construct(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0])


class Bag(nn.Cell):  # type: ignore[misc]
    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self.words = embedding("words")
        self.up, self.down, self.head = dense("up"), dense("down", fault), dense("head")
        self.activation = "relu" if fault == "activation" else "tanh"

    def construct(self, ids: Tensor) -> Tensor:
        return self.head(self.down(getattr(ops, self.activation)(self.up(self.words(ids)))))


class Block(nn.Cell):  # type: ignore[misc]
    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self.attention = Attention("", is_causal=True)
        self.norm, self.up, self.down = norm(fault), dense("up"), dense("down", fault)
        self.activation = "tanh" if fault == "activation" else "relu"

    def construct(self, x: Tensor) -> Tensor:
        x = self.attention(x)
        return x + self.down(getattr(ops, self.activation)(self.up(self.norm(x))))


class Gpt(nn.Cell):  # type: ignore[misc]
    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self.words, self.places = embedding("words"), embedding("places")
        self.blocks = nn.CellList([Block(""), Block(fault)])
        self.norm, self.head = norm(), dense("head")

    def construct(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places(ops.arange(w.LENGTH))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def _classified(outputs: Tensor, classes: Any) -> Tensor:
    return ops.cross_entropy(outputs.reshape((-1, w.CLASSES)), Tensor(classes, ms.int32))


def _squared(outputs: Tensor) -> Tensor:
    return ops.mse_loss(outputs, Tensor(w.WANTED[: len(outputs)]) if outputs.ndim == 2 else ops.zeros_like(outputs))


def network(name: str, fault: Fault = "") -> tuple[nn.Cell, Callable[[], Any]]:
    """Return a network of that name and a function that makes one step of its training."""
    rows, sequences, images, ids = Tensor(w.ROWS), Tensor(w.SEQUENCES), Tensor(w.IMAGES), Tensor(w.IDS, ms.int32)
    models: dict[str, tuple[Callable[[Fault], nn.Cell], Callable[[nn.Cell], Tensor]]] = {
        "mlp": (Mlp, lambda net: _squared(net(rows))),
        "cnn": (Cnn, lambda net: _classified(net(images), w.IMAGE_CLASSES)),
        "attention": (Attention, lambda net: _squared(net(sequences))),
        "lstm": (Lstm, lambda net: _squared(net(sequences))),
        "embedding": (Bag, lambda net: _classified(net(ids), w.ROW_CLASSES)),
        "accumulation": (Mlp, lambda net: _squared(net(rows))),
        "mixed precision": (Mlp, lambda net: _squared(net(rows).astype(ms.float32))),
        "gpt": (Gpt, lambda net: _classified(net(ids), w.ROW_CLASSES)),
    }
    make, loss = models[name]
    net = make(fault)
    net.set_train()
    if name == "mixed precision":
        for layer in (net.up, net.down, net.head):
            layer.to_float(ms.float16)
    weights = net.trainable_params()

    def step() -> None:
        ms.value_and_grad(lambda: loss(net), None, weights)()

    def accumulated() -> None:
        for part in (rows[:6], rows[6:]):
            ms.value_and_grad(lambda part=part: _squared(net(part)) / 2, None, weights)()

    return net, accumulated if name == "accumulation" else step

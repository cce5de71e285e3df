"""The networks in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.corpus.two_frameworks import weights as w


def _set(module: nn.Module, name: str) -> Any:
    for own, parameter in module.named_parameters():
        parameter.data = torch.from_numpy(w.weight(f"{name}.{own}"))
    return module


def dense(name: str) -> nn.Linear:
    rows, columns = w.WEIGHTS[f"{name}.weight"].shape
    return _set(nn.Linear(columns, rows), name)


def norm() -> nn.LayerNorm:
    return _set(nn.LayerNorm(w.WIDTH, eps=w.epsilon("")), "norm")


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.head = dense("up"), dense("down"), dense("head")

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.gelu(self.down(F.relu(self.up(x)))))


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = _set(nn.Conv2d(1, 4, 3, bias=False), "conv1")
        self.conv2 = _set(nn.Conv2d(4, 8, 3), "conv2")
        self.bn = _set(nn.BatchNorm2d(8, eps=w.epsilon("")), "bn")
        self.relu, self.pool = nn.ReLU(), nn.MaxPool2d(2, 2)
        self.classify = dense("classify")

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.relu(self.conv1(x)))
        x = self.pool(self.relu(self.bn(self.conv2(x))))
        return self.classify(x.flatten(1))


class Attention(nn.Module):
    def __init__(self, is_causal: bool = False) -> None:
        super().__init__()
        self.norm = norm()
        self.q, self.k, self.v, self.o = (dense(name) for name in "qkvo")
        self.is_causal = is_causal

    def forward(self, x: Tensor) -> Tensor:
        n = self.norm(x)
        scores = torch.matmul(self.q(n), self.k(n).transpose(1, 2)) / 4.0
        if self.is_causal:
            scores = scores.masked_fill(torch.from_numpy(w.FUTURE), -1e4)
        return x + self.o(torch.matmul(torch.softmax(scores, -1), self.v(n)))


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = _set(nn.LSTM(w.WIDTH, w.WIDTH, batch_first=True), "lstm")
        self.head = dense("head")

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0])


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = _set(nn.Embedding(w.WORDS, w.WIDTH), "words")
        self.up, self.down, self.head = dense("up"), dense("down"), dense("head")

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.down(torch.tanh(self.up(self.words(ids)))))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention(is_causal=True)
        self.norm, self.up, self.down = norm(), dense("up"), dense("down")

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention(x)
        return x + self.down(F.relu(self.up(self.norm(x))))


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = _set(nn.Embedding(w.WORDS, w.WIDTH), "words")
        self.places = _set(nn.Embedding(w.LENGTH, w.WIDTH), "places")
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm, self.head = norm(), dense("head")

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(w.LENGTH))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def _classified(outputs: Tensor, classes: Any) -> Tensor:
    return F.cross_entropy(outputs.reshape(-1, w.CLASSES), torch.from_numpy(classes))


def _squared(outputs: Tensor) -> Tensor:
    return F.mse_loss(
        outputs, torch.from_numpy(w.WANTED[: len(outputs)]) if outputs.ndim == 2 else torch.zeros_like(outputs)
    )


def network(name: str) -> tuple[nn.Module, Callable[[], Any]]:
    """Return a network of that name and a function that makes one step of its training."""
    rows, sequences, images, ids = (torch.from_numpy(x) for x in (w.ROWS, w.SEQUENCES, w.IMAGES, w.IDS))
    models: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module], Tensor]]] = {
        "mlp": (Mlp, lambda net: _squared(net(rows))),
        "cnn": (Cnn, lambda net: _classified(net(images), w.IMAGE_CLASSES)),
        "attention": (Attention, lambda net: _squared(net(sequences))),
        "lstm": (Lstm, lambda net: _squared(net(sequences))),
        "embedding": (Bag, lambda net: _classified(net(ids), w.ROW_CLASSES)),
        "accumulation": (Mlp, lambda net: _squared(net(rows))),
        "mixed precision": (Mlp, lambda net: _squared(net(rows).float())),
        "gpt": (Gpt, lambda net: _classified(net(ids), w.ROW_CLASSES)),
    }
    make, loss = models[name]
    net = make()

    def step() -> None:
        with torch.autocast("cpu", torch.float16, enabled=name == "mixed precision"):
            value = loss(net)
        value.backward()

    def accumulated() -> None:
        for part in (rows[:6], rows[6:]):
            (_squared(net(part)) / 2).backward()

    return net, accumulated if name == "accumulation" else step

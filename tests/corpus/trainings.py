"""Six small trainings that torch alone can run: a step each, with loss and optimizer, on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.corpus.families import GatedLSTM

Step = Callable[[], None]


class ConvNet(nn.Module):
    """Convolutions with batch norm, pooling and a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Map images to logits."""
        x = F.relu(self.norm(self.first(x)))
        x = F.max_pool2d(x + F.leaky_relu(self.second(x)), 2)
        logits: Tensor = self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))
        return logits


class PooledNet(nn.Module):
    """Convolutions with GELU, layer norm, dropout, and softmax over places."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1, stride=2)
        self.norm, self.head, self.weigh = nn.LayerNorm(16), nn.Linear(16, 5), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map images to logits."""
        x = F.gelu(self.second(F.relu(self.first(x)))).flatten(2).transpose(1, 2)
        x = F.dropout(self.norm(x), 0.1, self.training)
        logits: Tensor = self.head((torch.softmax(self.weigh(x), 1) * x).sum(1))
        return logits


class Attention(nn.Module):
    """A language model of one block with scaled dot product attention."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm, self.last = nn.Embedding(40, 16), nn.LayerNorm(16), nn.LayerNorm(16)
        self.mix, self.up, self.down = nn.Linear(16, 48), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, ids: Tensor) -> Tensor:
        """Map token ids to logits."""
        x = self.embed(ids)
        q, k, v = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in self.mix(self.norm(x)).chunk(3, -1))
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.down(F.gelu(self.up(self.last(x)), approximate="tanh"))
        return x @ self.embed.weight.t()


class Gated(nn.Module):
    """A block as Llama's in bfloat16, with attention, norm and rotation spelled out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix = nn.Embedding(40, 16), nn.Linear(16, 48, bias=False)
        self.up, self.gate, self.down = (nn.Linear(a, b, bias=False) for a, b in ((16, 32), (16, 32), (32, 16)))
        self.scale = nn.Parameter(torch.ones(16))

    def forward(self, ids: Tensor) -> Tensor:
        """Map token ids to logits."""
        x = self.embed(ids)
        q, k, v = self.mix(self._normed(x)).split(16, -1)
        k = torch.cat([-k[..., 8:], k[..., :8]], -1)
        scores = torch.matmul(q, k.transpose(-1, -2)) / 4
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        x = x + torch.matmul(F.softmax(scores.masked_fill(future, -1e4), -1, dtype=torch.float32).to(x.dtype), v)
        h = self._normed(x)
        return F.linear(x + self.down(F.silu(self.gate(h)) * self.up(h)), self.embed.weight).float()

    def _normed(self, x: Tensor) -> Tensor:
        long = x.float()
        return (long * torch.rsqrt(long.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.scale


class Coder(nn.Module):
    """Images to fewer numbers and back, with group norm and a transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.norm, self.last = nn.GroupNorm(2, 8), nn.Conv2d(8, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map images to images."""
        h = F.elu(self.norm(self.into(x)))
        up = F.interpolate(h, scale_factor=2.0, mode="nearest")
        return torch.sigmoid(self.last(F.softplus(self.out(h)) + torch.tanh(up)))


def _classifying(net: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    x, y = torch.randn(4, 3, 12, 12), torch.randint(0, 5, (4,))

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()

    return step


def _predicting(net: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    ids = torch.randint(0, 40, (3, 9))

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()

    return step


def _conv_net() -> Step:
    net = ConvNet()
    return _classifying(net, torch.optim.SGD(net.parameters(), 1e-3, momentum=0.9))


def _pooled() -> Step:
    net = PooledNet()
    return _classifying(net, torch.optim.AdamW(net.parameters(), 1e-3))


def _attention() -> Step:
    net = Attention()
    return _predicting(net, torch.optim.AdamW(net.parameters(), 1e-3))


def _lstm() -> Step:
    net = GatedLSTM()
    return _predicting(net, torch.optim.Adam(net.parameters(), 1e-3))


def _gated() -> Step:
    net = Gated().bfloat16()
    return _predicting(net, torch.optim.SGD(net.parameters(), 1e-3, momentum=0.9))


def _coder() -> Step:
    net = Coder()
    optimizer, x = torch.optim.RMSprop(net.parameters(), 1e-3), torch.rand(4, 3, 12, 12)

    def step() -> None:
        optimizer.zero_grad()
        (F.mse_loss(net(x), x) + 0.1 * F.l1_loss(net(x), x)).backward()
        optimizer.step()

    return step


TRAININGS: dict[str, Callable[[], Step]] = {
    "conv_net": _conv_net,
    "pooled": _pooled,
    "attention": _attention,
    "lstm": _lstm,
    "gated": _gated,
    "coder": _coder,
}

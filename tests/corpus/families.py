"""The models that are recorded: a training step each, small, on the CPU, repeatable by seed.

Sizes and seeds are those of published dumps, so that records can also be compared with dumps made elsewhere.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

MODEL_SEED = 20240917
STEP_SEED = 20240918

Loss = Callable[[], Tensor]


def seed(number: int) -> None:
    """Seed Python, numpy and torch."""
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


class GatedLSTM(nn.Module):
    """Embedding, two LSTM layers, a gated mix of two linears, head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 16)
        self.drop = nn.Dropout(0.1)
        self.rnn = nn.LSTM(16, 24, num_layers=2, batch_first=True)
        self.gate = nn.Linear(24, 24)
        self.mix = nn.Linear(24, 24)
        self.head = nn.Linear(24, 40)

    def forward(self, ids: Tensor) -> Tensor:
        """Map token ids (batch, sequence) to logits."""
        h, _ = self.rnn(self.drop(self.embed(ids)))
        g = torch.sigmoid(self.gate(h))
        m = self.mix(h)
        h = g * torch.tanh(m) + (1 - g) * h
        logits: Tensor = self.head(h)
        return logits


class BasicBlock(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = None
        if stride != 1 or channels_in != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Map an image batch to one of the block's channels and size."""
        idt = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            idt = self.downsample(x)
        out += idt
        result: Tensor = self.relu(out)
        return result


class ResNet18(nn.Module):
    """ResNet-18 of a given width."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = self._stage(width, width, 1)
        self.layer2 = self._stage(width, 2 * width, 2)
        self.layer3 = self._stage(2 * width, 4 * width, 2)
        self.layer4 = self._stage(4 * width, 8 * width, 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8 * width, classes)

    @staticmethod
    def _stage(channels_in: int, channels: int, stride: int) -> nn.Sequential:
        return nn.Sequential(BasicBlock(channels_in, channels, stride), BasicBlock(channels, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Map an image batch (batch, 3, height, width) to logits."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(torch.flatten(self.avgpool(x), 1))
        return logits


def _lstm() -> tuple[nn.Module, Loss]:
    model = GatedLSTM()
    ids = torch.randint(0, 40, (3, 9))
    return model, lambda: F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def _resnet18() -> tuple[nn.Module, Loss]:
    model = ResNet18(4, 5)
    x, y = torch.randn(2, 3, 32, 32), torch.tensor([0, 4])
    return model, lambda: F.cross_entropy(model(x), y)


def _gpt2() -> tuple[nn.Module, Loss]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_layer=2, n_embd=32, n_head=2, vocab_size=96, n_positions=32, use_cache=False, attn_implementation="eager"
    )
    return _causal(GPT2LMHeadModel(config))


def _llama(dtype: torch.dtype, attention: str) -> tuple[nn.Module, Loss]:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        num_hidden_layers=2,
        hidden_size=32,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
        vocab_size=96,
        max_position_embeddings=32,
        use_cache=False,
        attn_implementation=attention,
    )
    return _causal(LlamaForCausalLM(config).to(dtype))


def _causal(model: Any) -> tuple[nn.Module, Loss]:
    model.train()
    ids = torch.randint(0, 96, (2, 12))
    return model, lambda: model(input_ids=ids, labels=ids).loss


class Spellings(nn.Module):
    """The same arithmetic in every way that it can be spelled."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4, 4) + 0.5)
        self.scale = 0.7
        self.act = nn.Identity()
        self.many = nn.Bilinear(4, 4, 4)

    def forward(self, x: Tensor, *, bias: Tensor | None = None) -> Tensor:
        """Map a matrix (4, 4) to one; ``bias`` is added."""
        y = x + self.weight
        y = 2 + y - (1 - y) * 3 + math.sqrt(2.0) * y
        y = self.scale * y + y * self.scale + y / 2 + 2 / (y + 3) + (y.sigmoid() + 1) ** 2 + 2**-y + abs(-y)
        y = y % 5 + (y // 2).detach() + (7 % (y.detach() + 1)) + y @ self.weight
        y += 1
        y -= 0.5
        y *= 1.5
        y /= 2
        y = y.add(1).mul(2).sub(y, alpha=0.1).div(y.detach() + 9, rounding_mode=None)
        y = torch.add(y, y, alpha=2) + torch.sub(input=y, other=1)
        keep = (y > 0) | (1 < y) & ~(y == 2) ^ (y != 3)
        y = torch.where(keep & (y <= 100) | (y >= 3), y, y * 0)
        z = y.clone()
        z[0] = 1.0
        z[1, 2:] = y[1, 2:]
        z[:, [0, 1]] = z[:, [1, 0]]
        rows = z[torch.tensor([0, 2])].sum() + z[z > 0].sum() + z[..., None].mean()
        top, place = y.max(dim=1)
        first, second = y.chunk(2, dim=-1)
        _, spread = torch.std_mean(y, dim=0)
        y = y + torch.einsum("ij,jk->ik", y, self.weight) + torch.linalg.norm(y, ord=2, dim=(0, 1)) + top.sum() + rows
        y = y + F.pad(torch.cat([first, second], dim=1), (0, 0, 0, 0), value=0.0) + spread + place.float().mean()
        y = F.gelu(y, approximate="tanh") + F.layer_norm(y, (4,), eps=1e-6) + F.silu(y) + torch.relu(y).clamp(max=3.0)
        y = self.many(self.act(y), y.to(torch.float32)) + y.view(-1).reshape(4, 4).permute(1, 0).contiguous()
        y = y.masked_fill(keep, 0.25).type_as(x).expand(4, 4).float().squeeze().unsqueeze(0)[0]
        return y if bias is None else y + bias


def _spellings() -> tuple[nn.Module, Loss]:
    model = nn.Sequential(Spellings())
    x, bias = torch.rand(4, 4), torch.rand(4, requires_grad=True)
    return model, lambda: (model[0](x, bias=bias) ** 2).mean()


FAMILIES: dict[str, Callable[[], tuple[nn.Module, Loss]]] = {
    "lstm": _lstm,
    "resnet18": _resnet18,
    "spellings": _spellings,
    "gpt2": _gpt2,
    "llama-fp32": lambda: _llama(torch.float32, "sdpa"),
    "llama-bf16": lambda: _llama(torch.bfloat16, "eager"),
}

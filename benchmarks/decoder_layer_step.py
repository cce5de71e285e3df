"""Record a training step of Llama decoder layers with embedding, output projection and loss, and time plain ones.

Hidden states and weights are bfloat16; norms and the loss are computed in float32, as transformers does. The last line
holds the CPU seconds of each plain step.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from msprobe_hooks import record

HEAD = 128


@dataclass(frozen=True)
class Sizes:
    """What the layers are made of; heads have 128 elements, as in Llama 7B."""

    layers: int
    tokens: int
    hidden: int
    intermediate: int
    vocabulary: int


class RMSNorm(nn.Module):
    """Llama's normalisation."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x: Tensor) -> Tensor:
        """Scale hidden states by their root mean square, which is taken in float32."""
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


def rotated(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Turn queries or keys by their positions."""
    half = x.shape[-1] // 2
    return x * cosines + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sines


class DecoderLayer(nn.Module):
    """Rotary attention and gated feed-forward."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        hidden, wide = sizes.hidden, sizes.intermediate
        self.before_attention, self.before_mlp = RMSNorm(hidden), RMSNorm(hidden)
        self.q, self.k, self.v, self.o = (nn.Linear(hidden, hidden, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(hidden, wide, bias=False) for _ in range(2))
        self.down = nn.Linear(wide, hidden, bias=False)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        """Map hidden states (1, tokens, hidden) to hidden states."""
        h = self.before_attention(x)
        q, k, v = (each(h).view(1, x.shape[1], -1, HEAD).transpose(1, 2) for each in (self.q, self.k, self.v))
        q, k = rotated(q, cosines, sines), rotated(k, cosines, sines)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(attended.transpose(1, 2).reshape(x.shape))
        h = self.before_mlp(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Decoder(nn.Module):
    """Embedding, decoder layers, output projection."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.hidden)
        self.layers = nn.ModuleList(DecoderLayer(sizes) for _ in range(sizes.layers))
        self.norm = RMSNorm(sizes.hidden)
        self.head = nn.Linear(sizes.hidden, sizes.vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Map token ids (1, tokens) to logits (1, tokens, vocabulary)."""
        frequencies = 1e4 ** -(torch.arange(0, HEAD, 2, dtype=torch.float32) / HEAD)
        angles = torch.outer(torch.arange(ids.shape[1], dtype=torch.float32), frequencies).repeat(1, 2)
        x = self.embedding(ids)
        cosines, sines = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cosines, sines)
        return self.head(self.norm(x))


def trained(model: nn.Module, ids: Tensor) -> None:
    """Run the step, forward and backward."""
    logits = model(ids)[0, :-1]
    F.cross_entropy(logits.float(), ids[0, 1:]).backward()
    model.zero_grad()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the dump goes")
    for name in Sizes.__dataclass_fields__:
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--steps", type=int, default=3, help="plain ones")
    options = vars(parser.parse_args())
    folder, steps = options.pop("folder"), options.pop("steps")

    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = Sizes(**options)
    model = Decoder(sizes).to(torch.bfloat16)
    ids = torch.randint(sizes.vocabulary, (1, sizes.tokens))
    with record(folder, level="L1"):
        trained(model, ids)
    seconds = []
    for _ in range(steps):
        start = time.process_time()
        trained(model, ids)
        seconds.append(time.process_time() - start)
    print("seconds", json.dumps(seconds))


if __name__ == "__main__":
    main()

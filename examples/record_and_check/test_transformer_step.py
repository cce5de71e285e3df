"""Record a training step of a small transformer and check every API call that it made, in one test."""

from __future__ import annotations

import torch
from torch import nn


class Block(nn.Module):
    """One pre-norm transformer block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


def test_every_api_of_a_training_step_is_precise(msprobe_dump):
    torch.manual_seed(0)
    embedding, block, head = nn.Embedding(50, 32), Block(32, 4), nn.Linear(32, 50)
    tokens = torch.randint(0, 50, (2, 17))
    optimizer = torch.optim.AdamW([*embedding.parameters(), *block.parameters(), *head.parameters()], lr=1e-3)

    logits = head(block(embedding(tokens[:, :-1])))
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()

    results = msprobe_dump.check()
    assert any(result.record == "Functional.scaled_dot_product_attention.0.backward" for result in results)

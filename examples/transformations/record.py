"""Records one layer as a training holds it, as an engine does, and as a faulty engine does.

Run it as ``python record.py``; it writes ``train``, ``serve``, ``faulty`` and the rotation, ``Q.npy``. In the engine
hidden states and weights are rotated by Q, the rotary pairs of each head are neighbours, and the weight of ``down`` is
int8 with a scale for each row. The faulty engine left the rotary pairs of the second head as they were.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from msprobe_hooks import record

WIDTH, HEAD_DIM, TOKENS = 32, 8, 6


class Weight(nn.Module):
    """Returns a weight and its scale, as a loader does."""

    def __init__(self, weight: torch.Tensor, scale: torch.Tensor) -> None:
        super().__init__()
        self.weight, self.scale = weight, scale

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.weight, self.scale


class Layer(nn.Module):
    """Projects hidden states to queries, and looks the weight of the next layer up."""

    def __init__(self, query: torch.Tensor, down: Weight) -> None:
        super().__init__()
        self.norm, self.query, self.down = nn.Identity(), nn.Linear(WIDTH, WIDTH, bias=False), down
        self.query.weight = nn.Parameter(query)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        queries = self.query(self.norm(hidden))
        self.down(queries)
        return queries


def main() -> None:
    torch.manual_seed(0)
    rotation = torch.linalg.qr(torch.randn(WIDTH, WIDTH, dtype=torch.float64))[0].float()
    np.save("Q.npy", rotation.numpy())
    hidden, query, down = torch.randn(1, TOKENS, WIDTH), torch.randn(WIDTH, WIDTH), torch.randn(WIDTH, WIDTH)
    scale = down.abs().amax(1, keepdim=True) / 127
    train = Layer(query, Weight(down, scale))
    with record("train", "L0", model=train, task="tensor"):
        train(hidden)

    neighbours = query.view(-1, 2, HEAD_DIM // 2, WIDTH).transpose(1, 2).reshape(WIDTH, WIDTH)
    forgotten = neighbours.clone()
    forgotten[HEAD_DIM : 2 * HEAD_DIM] = query[HEAD_DIM : 2 * HEAD_DIM]
    stored = Weight((down / scale).round().to(torch.int8), scale)
    for folder, weight in (("serve", neighbours), ("faulty", forgotten)):
        engine = Layer(weight @ rotation, stored)
        with record(folder, "L0", model=engine, task="tensor"):
            engine(hidden @ rotation)


main()

"""Three steps of a small transformer on a device whose matrix product is imprecise now and then.

``pytest-msprobe bisect`` finds the call, by running this program some fifteen times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

WORDS, WIDTH, HEADS, LAYERS, LENGTH = 50, 32, 4, 2, 16


class ImpreciseDevice(TorchDispatchMode):
    """Rounds the operands of its 21st product in float32 to bfloat16, as a kernel with a fault would."""

    products = 0

    def __torch_dispatch__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.addmm.default:
            self.products += 1
            if self.products == 21 and args[1].dtype is torch.float32:
                args = [operand.bfloat16().float() for operand in args]
        return func(*args, **(kwargs or {}))


class Block(nn.Module):
    """Attention and a feed-forward network."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        heads = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        attended = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(-2))
        return x + self.mlp(x)


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(WORDS, WIDTH), *(Block() for _ in range(LAYERS)), nn.Linear(WIDTH, WORDS))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    text = torch.randint(WORDS, (4, LENGTH + 1))
    with ImpreciseDevice():
        for step in range(3):
            loss = F.cross_entropy(model(text[:, :-1]).transpose(1, 2), text[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step}: loss {loss.item():.9f}")


if __name__ == "__main__":
    main()

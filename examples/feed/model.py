"""A model that was ported with two faults, of which the first hides the second.

Run as ``python model.py golden``, ``ported`` or ``fed``: each writes a recording into the folder of that name.
"""

import sys
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import nn

from msprobe_hooks import feed, record


class Norm(nn.Module):
    """Divides by the root mean square."""

    def __init__(self, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


class Mlp(nn.Module):
    """Two layers, scaled."""

    def __init__(self, scale):
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)
        self.scale = scale

    def forward(self, x):
        return self.down(F.silu(self.up(x))) * self.scale


class Block(nn.Module):
    """A norm and an MLP, added to what they are given."""

    def __init__(self, eps=1e-6, scale=0.5):
        super().__init__()
        self.norm, self.mlp = Norm(eps), Mlp(scale)

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Model(nn.Module):
    """Blocks one after another."""

    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


run = sys.argv[1]
torch.manual_seed(0)
if run == "golden":
    model = Model([Block(), Block(), Block(), Block()])
else:
    # The port forgot a scale in one block, and took another epsilon in a later one.
    model = Model([Block(scale=1.0), Block(), Block(eps=1e-2), Block()])
x = torch.randn(4, 16)

inputs = feed("golden", modules=["*"]) if run == "fed" else nullcontext()
with torch.no_grad(), inputs, record(run, level="L0", task="tensor", model=model):
    model(x)

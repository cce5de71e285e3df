"""Programs of random calls, mostly views, on tensors of many layouts."""

from __future__ import annotations

import random

import torch
import torch.nn.functional as F
from torch import Tensor


def outside(rng: random.Random, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor that the recorded program gets from elsewhere, laid out anyhow."""
    kind = rng.randrange(5)
    if kind == 0:
        return torch.randn(shape)
    if kind == 1:
        order = rng.sample(range(len(shape)), len(shape))
        inverse = [order.index(dim) for dim in range(len(shape))]
        return torch.randn([shape[dim] for dim in order]).permute(inverse)
    if kind == 2:
        return torch.randn([size + 2 for size in shape])[tuple(slice(1, size + 1) for size in shape)]
    if kind == 3 and len(shape) == 4:
        return torch.randn(shape).to(memory_format=torch.channels_last)
    return torch.randn([*shape, 2])[..., 0]


def run(rng: random.Random, given: list[Tensor], steps: int) -> None:
    """Run a random program on the tensors."""
    pool = list(given)
    for _ in range(steps):
        x = rng.choice(pool)
        try:
            made = _step(rng, x, pool)
        except (RuntimeError, IndexError, ValueError, TypeError):
            continue
        pool += [each for each in made if each.numel()]
        if len(pool) > 12:
            del pool[rng.randrange(len(pool))]


def _step(rng: random.Random, x: Tensor, pool: list[Tensor]) -> list[Tensor]:
    dims = x.dim()
    dim = rng.randrange(-dims, dims) if dims else 0
    other = rng.randrange(-dims, dims) if dims else 0
    size = x.shape[dim] if dims else 1
    y = rng.choice(pool)
    choices = [
        lambda: x.t(),
        lambda: x.T if dims == 2 else x.mT,
        lambda: x.mT,
        lambda: x.transpose(dim, other),
        lambda: torch.transpose(x, dim0=dim, dim1=other),
        lambda: x.swapaxes(dim, other),
        lambda: x.permute(rng.sample(range(dims), dims)),
        lambda: x.permute(*rng.sample(range(dims), dims)),
        lambda: torch.permute(x, tuple(rng.sample(range(dims), dims))),
        lambda: x.movedim(dim, other),
        lambda: torch.movedim(x, (0, 1), (dim, other)),
        lambda: x.unsqueeze(dim),
        lambda: x.squeeze(),
        lambda: x.squeeze(dim),
        lambda: x.unsqueeze(0).expand(rng.randint(1, 3), *x.shape),
        lambda: x.expand([2, *x.shape]),
        lambda: x.expand_as(torch.empty(2, *x.shape)),
        lambda: torch.broadcast_to(x, (3, *x.shape)),
        lambda: x[..., None],
        lambda: x[None, ..., 0],
        lambda: x[rng.randrange(-len(x), len(x))],
        lambda: x[rng.randrange(len(x)) :],
        lambda: x[:, :: rng.randint(1, 2)],
        lambda: x[..., 1:, None],
        lambda: x[:, None, 0:2],
        lambda: x[torch.tensor([0, len(x) - 1])],
        lambda: x.narrow(dim, 0, max(1, size - 1)),
        lambda: x.narrow(dim, 1, max(1, size - 1)),
        lambda: x.select(dim, size - 1),
        lambda: list(x.chunk(rng.randint(1, 3), dim)),
        lambda: list(x.split(rng.randint(1, 3), dim)),
        lambda: list(torch.split(x, [1, size - 1], dim=dim)),
        lambda: list(x.unbind(dim))[:2],
        lambda: x.view(-1),
        lambda: x.view(*x.shape[:-1], -1, 2),
        lambda: x.view(x.shape[0], -1),
        lambda: x.reshape(-1),
        lambda: x.reshape(x.shape[0], -1),
        lambda: x.reshape(*x.shape[:-2], -1),
        lambda: torch.reshape(x, (2, -1)),
        lambda: x.flatten(1),
        lambda: x.flatten(0, 1),
        lambda: x.unflatten(dim, (2, -1)),
        lambda: x.contiguous(),
        lambda: x.contiguous(memory_format=torch.channels_last),
        lambda: x.to(memory_format=torch.channels_last),
        lambda: x.clone(),
        lambda: x.clone(memory_format=torch.contiguous_format),
        lambda: x.to(torch.float64),
        lambda: x.to(torch.float32),
        lambda: x.float(),
        lambda: x.detach(),
        lambda: x.data,
        lambda: x.add_(1),
        lambda: x.t_(),
        lambda: x.transpose_(dim, other),
        lambda: x.mul(y),
        lambda: x + y,
        lambda: y * x,
        lambda: x * 2,
        lambda: torch.relu(x) - 0.25,
        lambda: F.gelu(x),
        lambda: F.softmax(x, dim=dim),
        lambda: F.layer_norm(x, x.shape[-1:]),
        lambda: F.linear(x, torch.randn(rng.randint(2, 6), x.shape[-1], dtype=x.dtype)),
        lambda: F.linear(x, torch.randn(x.shape[-1], 6, dtype=x.dtype).t()),
        lambda: torch.mm(x, torch.randn(x.shape[-1], 5, dtype=x.dtype)),
        lambda: torch.bmm(x, y),
        lambda: x @ y,
        lambda: x @ x.mT,
        lambda: F.dropout(x, 0.5, training=bool(rng.randrange(2))),
        lambda: torch.cat([x, x], dim),
        lambda: x.sum(dim),
        lambda: torch.zeros_like(x) + x,
        lambda: torch.empty_like(x).copy_(x),
        lambda: torch.rand(rng.choice([(2, 3, 4), (4, 6), (2, 4, 3, 5)])),
        lambda: F.embedding(torch.randint(0, 5, (3, 4)), torch.randn(5, 6)),
        lambda: F.conv2d(x, torch.randn(3, x.shape[1], 1, 1, dtype=x.dtype)),
    ]
    made = rng.choice(choices)()
    return made if isinstance(made, list) else [made]

"""A small mixture of experts as one process trains it, and as ranks that share sequences and experts do, by gloo.

Run as a program by every rank: ``train(rank, folder, count, cases)``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from msprobe_hooks import record

WIDTH, HEADS, EXPERTS, VOCABULARY, BATCH, LENGTH = 8, 4, 4, 20, 2, 16


class Ranks:
    """What a rank knows of the others: which places of the sequence it has, and how attention is shared."""

    def __init__(self, rank: int, count: int, plan: str, fault: str) -> None:
        self.rank, self.count, self.fault = rank, count, fault
        words = plan.split("+")
        self.attention = next((word for word in words if word in ("contiguous", "zigzag", "ulysses")), "")
        self.shares_experts = "experts" in words
        self.averages = "mean" in words
        self.places = self._places(rank)
        self.believed = self.places
        if fault == "order" and rank == 1:
            self.believed = torch.cat([*reversed(self.places.chunk(2))])

    def _places(self, rank: int) -> torch.Tensor:
        places = torch.arange(LENGTH)
        if not self.attention:
            return places
        if self.attention != "zigzag":
            return places.chunk(self.count)[rank]
        chunks = places.chunk(2 * self.count)
        return torch.cat([chunks[rank], chunks[2 * self.count - 1 - rank]])

    def gathered_order(self) -> torch.Tensor:
        """Return where each place of the sequence is among those of all ranks one after the other."""
        return torch.cat([self._places(rank) for rank in range(self.count)]).argsort()


class _Gather(torch.autograd.Function):
    """The whole sequence of what each rank has a part of; its gradient is the sum over ranks."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, ranks: Ranks) -> torch.Tensor:
        ctx.ranks = ranks
        parts = [torch.empty_like(x) for _ in range(ranks.count)]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts, 1)[:, ranks.gathered_order()]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        gradient = gradients[0].contiguous()
        if ctx.ranks.fault != "attention":
            dist.all_reduce(gradient)
        return gradient[:, ctx.ranks.places], None


class _Exchange(torch.autograd.Function):
    """Rows sent to other ranks, ``sizes`` of them to each; the gradient goes the other way."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, sizes: list[int], received: list[int]) -> torch.Tensor:
        ctx.sizes, ctx.received = sizes, received
        return _exchanged(x, sizes, received)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _exchanged(gradients[0], ctx.received, ctx.sizes), None, None


def _exchanged(x: torch.Tensor, sizes: list[int], received: list[int]) -> torch.Tensor:
    out = x.new_empty((sum(received), *x.shape[1:]))
    dist.all_to_all_single(out, x.contiguous(), received, sizes)
    return out


class Core(nn.Module):
    """Causal attention over the whole sequence."""

    def __init__(self, ranks: Ranks) -> None:
        super().__init__()
        self.ranks = ranks

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        places = self.ranks.believed
        if self.ranks.attention == "ulysses":
            query, key, value = (self._by_heads(each) for each in (query, key, value))
            places = torch.arange(LENGTH)
        elif self.ranks.attention:
            key, value = (_Gather.apply(each, self.ranks) for each in (key, value))
        scores = torch.einsum("bqhd,bkhd->bhqk", query, key) / 2
        scores = scores.masked_fill(torch.arange(LENGTH)[None, :] > places[:, None], float("-inf"))
        mixed = torch.einsum("bhqk,bkhd->bqhd", functional.softmax(scores, dim=-1), value)
        return self._by_places(mixed) if self.ranks.attention == "ulysses" else mixed

    def _by_heads(self, x: torch.Tensor) -> torch.Tensor:
        count = self.ranks.count
        sent = torch.cat([part.transpose(0, 1).flatten(1) for part in x.chunk(count, 2)])
        rows = [sent.shape[0] // count] * count
        got = _Exchange.apply(sent, rows, rows)
        return got.view(LENGTH, BATCH, HEADS // count, -1).transpose(0, 1)

    def _by_places(self, x: torch.Tensor) -> torch.Tensor:
        count = self.ranks.count
        sent = x.transpose(0, 1).flatten(1)
        rows = [LENGTH // count] * count
        got = _Exchange.apply(sent, rows, rows).chunk(count)
        return torch.cat([part.view(LENGTH // count, BATCH, HEADS // count, -1) for part in got], 2).transpose(0, 1)


class Attention(nn.Module):
    def __init__(self, ranks: Ranks) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.core = Core(ranks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = (*x.shape[:2], HEADS, WIDTH // HEADS)
        mixed = self.core(self.query(x).view(heads), self.key(x).view(heads), self.value(x).view(heads))
        return self.out(mixed.reshape(x.shape))


class Expert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(functional.gelu(self.up(x)))


class Mixture(nn.Module):
    """A router that sends each token to one expert."""

    def __init__(self, ranks: Ranks) -> None:
        super().__init__()
        self.ranks = ranks
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(Expert() for _ in range(EXPERTS))

    def keep_own(self) -> None:
        """Leave the experts of this rank."""
        count = EXPERTS // self.ranks.count
        own = [*self.experts[self.ranks.rank * count :][:count]]
        if self.ranks.fault == "expert" and self.ranks.rank == 1:
            own.reverse()
        self.experts = nn.ModuleList(own)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.reshape(-1, WIDTH)
        weight, chosen = functional.softmax(self.router(tokens), dim=-1).max(-1)
        order = chosen.argsort(stable=True)
        counts = torch.bincount(chosen, minlength=EXPERTS)
        mixed = self._computed(tokens[order], counts)
        return x + (mixed[order.argsort()] * weight[:, None]).view(x.shape)

    def _computed(self, tokens: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        if not self.ranks.shares_experts:
            return torch.cat([e(part) for e, part in zip(self.experts, tokens.split(counts.tolist()), strict=True)])
        mine = torch.empty_like(counts)
        dist.all_to_all_single(mine, counts)
        sizes, received = (each.view(self.ranks.count, -1).sum(1).tolist() for each in (counts, mine))
        got = _Exchange.apply(tokens, sizes, received)
        own = len(self.experts)
        expert_of = torch.arange(own).repeat(self.ranks.count).repeat_interleave(mine)
        order = expert_of.argsort(stable=True)
        parts = got[order].split(torch.bincount(expert_of, minlength=own).tolist())
        done = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)])
        return _Exchange.apply(done[order.argsort()], received, sizes)


class Model(nn.Module):
    def __init__(self, ranks: Ranks) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = Attention(ranks)
        self.mixture = Mixture(ranks)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        return self.head(self.mixture(x + self.attention(self.norm(x))))


def train(rank: int, folder: str, count: int, cases: list[tuple[str, str]]) -> None:
    """Record one training step of a rank for each plan and fault, into a folder of their names."""
    if count > 1:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store{count}", rank=rank, world_size=count)
    for plan, fault in cases:
        _train(Path(folder) / f"{count}-{plan}-{fault}", rank, count, plan, fault)
    if count > 1:
        # A rank that leaves while another still reads from it aborts that one.
        dist.barrier()
        dist.destroy_process_group()


def _train(folder: Path, rank: int, count: int, plan: str, fault: str) -> None:
    """Record one training step of a rank, whose gradients are reduced over all."""
    torch.manual_seed(2)
    ranks = Ranks(rank, count, plan, fault)
    model = Model(ranks)
    tokens, labels = torch.randint(VOCABULARY, (2, BATCH, LENGTH))
    if ranks.shares_experts:
        model.mixture.keep_own()
    if ranks.attention:
        tokens, labels = tokens[:, ranks.places], labels[:, ranks.places]
    elif count > 1:
        tokens, labels = tokens.chunk(count)[rank], labels.chunk(count)[rank]
    with record(folder, level="mix", model=model, quiet=True):
        logits = model(tokens).flatten(0, 1)
        counted = labels.numel() if ranks.averages else BATCH * LENGTH
        loss = functional.cross_entropy(logits, labels.flatten(), reduction="sum") / counted
        if fault == "loss":
            loss = loss * count
        loss.backward()
        if count > 1:
            _reduce(model, ranks)


def _reduce(model: Model, ranks: Ranks) -> None:
    for name, parameter in model.named_parameters():
        is_shared = not (ranks.shares_experts and "experts" in name)
        if is_shared and not (ranks.fault == "router" and "router" in name):
            dist.all_reduce(parameter.grad)
        if ranks.averages:
            parameter.grad.div_(ranks.count)

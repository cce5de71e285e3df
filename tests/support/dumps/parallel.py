"""A small transformer as one process trains it, and as ranks of a tensor and pipeline parallel training do.

Each rank is run by itself. What it would be given by others, the sum that its part goes into and the gradients and
activations of other stages, comes from a run of the whole model, which is nowhere recorded.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional

from msprobe_hooks import record

WIDTH, HEADS, LAYERS, MICRO = 8, 4, 4, 2


class _Copied(torch.autograd.Function):
    """What enters a split layer: its gradient is the sum over ranks."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(gradient)
        return torch.ops.aten.alias(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.saved_tensors[0], None


class _Reduced(torch.autograd.Function):
    """What leaves a split layer: the sum over ranks."""

    @staticmethod
    def forward(ctx: Any, part: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.alias(whole)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0], None


@dataclass
class Others:
    """What a rank knows of the others: what the whole model computed, by layer and micro step."""

    entering: dict[tuple[str, int], torch.Tensor] = field(default_factory=dict)
    leaving: dict[tuple[str, int], torch.Tensor] = field(default_factory=dict)
    boundary: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)
    micro: int = 0
    role: Literal["teacher", "rank", "alone"] = "teacher"

    def enter(self, name: str, x: torch.Tensor) -> torch.Tensor:
        if self.role == "rank":
            return _Copied.apply(x, self.entering[name, self.micro].grad)  # type: ignore[no-any-return]
        if self.role == "teacher":
            x = x.view_as(x)
            x.retain_grad()
            self.entering[name, self.micro] = x
        return x

    def leave(self, name: str, part: torch.Tensor) -> torch.Tensor:
        if self.role == "rank":
            return _Reduced.apply(part, self.leaving[name, self.micro])  # type: ignore[no-any-return]
        if self.role == "teacher":
            self.leaving[name, self.micro] = part.detach()
        return part


class Mlp(nn.Module):
    def __init__(self, name: str, weights: dict[str, torch.Tensor], others: Others) -> None:
        super().__init__()
        self.name, self.others = name, others
        self.up, self.down = (nn.Parameter(weights[f"{name}.{part}"].clone()) for part in ("up", "down"))
        self.bias = nn.Parameter(weights[f"{name}.bias"].clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = functional.gelu(functional.linear(self.others.enter(self.name, x), self.up))
        return self.others.leave(self.name, functional.linear(inner, self.down)) + self.bias


class Attention(nn.Module):
    def __init__(self, name: str, weights: dict[str, torch.Tensor], others: Others) -> None:
        super().__init__()
        self.name, self.others = name, others
        self.query, self.key, self.value, self.out = (
            nn.Parameter(weights[f"{name}.{part}"].clone()) for part in ("query", "key", "value", "out")
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.others.enter(self.name, x)
        heads = self.query.shape[0] // (WIDTH // HEADS)
        query, key, value = (
            functional.linear(x, weight).view(x.shape[0], heads, WIDTH // HEADS).transpose(0, 1)
            for weight in (self.query, self.key, self.value)
        )
        scores = functional.softmax(torch.matmul(query, key.transpose(1, 2)), dim=-1)
        mixed = torch.matmul(scores, value).transpose(0, 1).reshape(x.shape[0], heads * (WIDTH // HEADS))
        return self.others.leave(self.name, functional.linear(mixed, self.out))


class Block(nn.Module):
    def __init__(self, layer: int, weights: dict[str, torch.Tensor], others: Others) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = Attention(f"{layer}.attention", weights, others)
        self.mlp = Mlp(f"{layer}.mlp", weights, others)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm(x))
        return x + self.mlp(x)


class Model(nn.Module):
    """Some layers of the transformer, counted from 0 as a stage counts them."""

    def __init__(self, layers: range, weights: dict[str, torch.Tensor], others: Others) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(layer, weights, others) for layer in layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


#: The dimension in which each weight is split; others are copied.
SPLIT = {"query": 0, "key": 0, "value": 0, "out": 1, "up": 0, "down": 1}


def make_weights() -> dict[str, torch.Tensor]:
    """Return the weights of all layers."""
    generator = torch.Generator().manual_seed(3)
    shapes = dict.fromkeys(("attention.query", "attention.key", "attention.value", "attention.out"), (WIDTH, WIDTH))
    shapes |= {"mlp.up": (3 * WIDTH, WIDTH), "mlp.down": (WIDTH, 3 * WIDTH), "mlp.bias": (WIDTH,)}
    return {
        f"{layer}.{name}": torch.randn(shape, generator=generator) / 3
        for layer in range(LAYERS)
        for name, shape in shapes.items()
    }


def _part(name: str, weight: torch.Tensor, rank: int, tp: int) -> torch.Tensor:
    dim = SPLIT.get(name.rpartition(".")[2])
    return weight if dim is None else weight.chunk(tp, dim)[rank]


def _inputs() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(5, WIDTH, generator=generator) for _ in range(MICRO)]


def _run_whole(weights: dict[str, torch.Tensor]) -> Others:
    """Train one step of the whole model, and keep what ranks receive from others."""
    others = Others()
    model = Model(range(LAYERS), weights, others)
    for others.micro, x in enumerate(_inputs()):
        x.requires_grad_()
        for number, layer in enumerate(model.layers):
            x.retain_grad()
            others.boundary[number, others.micro] = x
            x = layer(x)
        x.retain_grad()
        others.boundary[LAYERS, others.micro] = x
        x.square().sum().backward()
    others.role = "rank"
    return others


def record_run(
    folder: Path,
    tp: int = 1,
    pp: int = 1,
    vpp: int = 1,
    spoil: Callable[[int, dict[str, torch.Tensor]], None] | None = None,
    replicas: int = 1,
) -> Path:
    """Record one step of the training by all ranks, numbered tp first, and return its folder.

    ``spoil`` may change the weights of a rank. Ranks go forward through all micro steps before they go back.
    """
    weights = make_weights()
    others = _run_whole(weights)
    per_stage = LAYERS // (pp * vpp)
    for rank in range(tp * replicas * pp):
        stage = rank // (tp * replicas)
        own = {name: _part(name, weight, rank % tp, tp) for name, weight in weights.items()}
        if spoil is not None:
            spoil(rank, own)
        starts = [(chunk * pp + stage) * per_stage for chunk in range(vpp)]
        known = others if tp > 1 else Others(role="alone")
        models = [Model(range(start, start + per_stage), own, known) for start in starts]
        with record(folder / f"of{rank}", level="mix", model=models if vpp > 1 else models[0]):
            _train(models, starts, per_stage, known, others, one_by_one=pp == 1)
        (folder / "step0").mkdir(exist_ok=True)
        shutil.move(folder / f"of{rank}" / "step0" / "rank", folder / "step0" / f"rank{rank}")
        (folder / f"of{rank}" / "step0").rmdir()
    return folder / "step0"


def _train(
    models: list[Model], starts: list[int], count: int, known: Others, others: Others, *, one_by_one: bool
) -> None:
    passed: dict[tuple[int, int], torch.Tensor] = {}

    def forward(chunk: int) -> None:
        x = others.boundary[starts[chunk], known.micro].detach().requires_grad_()
        passed[chunk, known.micro] = models[chunk](x)

    def backward(chunk: int) -> None:
        gradient = others.boundary[starts[chunk] + count, known.micro].grad
        passed[chunk, known.micro].backward(gradient)

    steps = [[micro] for micro in range(MICRO)] if one_by_one else [list(range(MICRO))]
    for together in steps:
        for run, chunks in ((forward, range(len(models))), (backward, reversed(range(len(models))))):
            for chunk in chunks:
                for known.micro in together:
                    run(chunk)

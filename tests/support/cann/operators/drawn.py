"""The NPU's operators whose results are drawn, or jump where a sum meets a bound; numpy's and torch's generators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def npu_dropout_gen_mask(size: Sequence[int], p: float, **options: Any) -> Tensor:
    return _bits(math.prod(size), p, torch.Generator().manual_seed(int(torch.randint(2**31, ()))))


def _npu_dropout_gen_mask(
    self: Tensor,
    size: Sequence[int],
    p: float,
    seed: int,
    offset: int,
    *,
    parallel: bool | None = True,
    sync: bool | None = None,
) -> Tensor:
    return _bits(math.prod(size), p, torch.Generator().manual_seed(seed + 1_000_003 * offset))


def _npu_dropout(self: Tensor, p: float) -> tuple[Tensor, Tensor]:
    mask = npu_dropout_gen_mask(self.shape, p)
    kept = torch.tensor([byte >> bit & 1 for byte in mask.tolist() for bit in range(8)])[: self.numel()]
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return torch.where(kept.view(self.shape) == 1, self.double() * scale, 0.0).to(self.dtype), mask


def npu_sim_exponential_(self: Tensor, lambd: float = 1, *, generator: torch.Generator | None = None) -> Tensor:
    return self.copy_(-torch.log1p(-torch.rand(self.shape, dtype=torch.float64)) / lambd)


def npu_random_choice_with_mask(x: Tensor, count: int = 256, seed: int = 0, seed2: int = 0) -> tuple[Tensor, Tensor]:
    places = x.nonzero()
    count = count or len(places)
    chosen = places[torch.randperm(len(places))][:count]
    result, mask = torch.zeros(count, x.dim(), dtype=torch.int32), torch.zeros(count, dtype=torch.bool)
    result[: len(chosen)], mask[: len(chosen)] = chosen.int(), True
    return result, mask


def npu_sub_sample(self: Tensor, per_images: int, positive_fraction: float) -> Tensor:
    result = torch.full_like(self, -1)
    left = per_images
    for label, most in ((1, int(per_images * positive_fraction + 1e-6)), (0, per_images)):
        places = (self == label).nonzero().flatten()
        chosen = places[torch.randperm(len(places))][: min(most, left)]
        result[chosen] = label
        left -= len(chosen)
    return result


def npu_top_k_top_p(logits: Tensor, p: Tensor | None = None, k: Tensor | None = None) -> Tensor:
    result = logits.clone()
    for number, row in enumerate(result):
        if k is not None:
            row[row < row.sort(descending=True).values[int(k[number]) - 1]] = -torch.inf
        if p is not None:
            order = row.argsort(stable=True)
            total = 0.0
            shares = row.double().softmax(0)
            for place in order[:-1].tolist():
                total += float(shares[place])
                if total <= 1 - float(p[number]):
                    row[place] = -torch.inf
    return result


def npu_top_k_top_p_sample(
    logits: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    q: Tensor | None = None,
    eps: float | None = 1e-8,
    is_need_logits: bool | None = False,
    top_k_guess: int | None = 32,
    min_ps: Tensor | None = None,
    ks_max: int | None = 1024,
    input_is_logits: bool | None = True,
    post_sample: str | None = "qSample",
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    tokens = torch.empty(len(logits), dtype=torch.int64)
    gone = -torch.inf if input_is_logits else 0.0
    selected = torch.full(logits.shape, gone, dtype=torch.float32)
    for number, row in enumerate(logits.double()):
        k, p = int(top_k[number]), float(top_p[number])
        is_cut = 1 <= k <= min(len(row), -(-min(int(ks_max or 1024), 1024) // 8) * 8)
        order = row.argsort(descending=True, stable=True).tolist() if is_cut or p < 1 else list(range(len(row)))
        order = order[:k] if is_cut else order
        shares = row[order].softmax(0) if input_is_logits else row[order]
        if p < 1:
            before = shares.cumsum(0) - shares
            order = [place for rank, place in enumerate(order) if rank == 0 or (p > 0 and float(before[rank]) <= p)]
        if min_ps is not None and float(min_ps[number]) > 0:
            least = float(shares.max()) * min(float(min_ps[number]), 1.0)
            order = [place for place, share in zip(order, shares.tolist(), strict=False) if share >= least]
        left = row[order].softmax(0) if input_is_logits else row[order]
        if str(post_sample).lower() == "multinomial":
            best = int(torch.multinomial(left, 1))
        else:
            weights = (
                left if q is None or post_sample == "None" else left / (q[number, : len(order)].abs() + float(eps or 0))
            )
            best = int(weights.argmax())
        tokens[number] = order[best]
        selected[number, order] = row[order].float()
    return tokens, selected if is_need_logits else torch.empty(0)


def _bits(count: int, p: float, generator: torch.Generator) -> Tensor:
    kept = torch.zeros(-(-count // 128) * 128, dtype=torch.int64)
    kept[:count] = (torch.rand(count, generator=generator, dtype=torch.float64) >= p).long()
    return (kept.view(-1, 8) << torch.arange(8)).sum(1).to(torch.uint8)

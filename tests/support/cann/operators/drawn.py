"""The NPU's operators whose results are drawn, or jump where a sum meets a bound; numpy's and torch's generators."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema


@by_schema
def npu_dropout_gen_mask(args: Arguments) -> Tensor:
    return _bits(math.prod(args.size), args.p, torch.Generator().manual_seed(int(torch.randint(2**31, ()))))


@by_schema
def _npu_dropout_gen_mask(args: Arguments) -> Tensor:
    return _bits(math.prod(args.size), args.p, torch.Generator().manual_seed(args.seed + 1_000_003 * args.offset))


@by_schema
def _npu_dropout(args: Arguments) -> tuple[Tensor, Tensor]:
    mask = npu_dropout_gen_mask(args.self.shape, args.p)
    kept = torch.tensor([byte >> bit & 1 for byte in mask.tolist() for bit in range(8)])[: args.self.numel()]
    scale = 0.0 if args.p == 1 else 1 / (1 - args.p)
    return torch.where(kept.view(args.self.shape) == 1, args.self.double() * scale, 0.0).to(args.self.dtype), mask


@by_schema
def npu_sim_exponential_(args: Arguments) -> Tensor:
    return args.self.copy_(-torch.log1p(-torch.rand(args.self.shape, dtype=torch.float64)) / args.lambd)


@by_schema
def npu_random_choice_with_mask(args: Arguments) -> tuple[Tensor, Tensor]:
    places = args.x.nonzero()
    count = args.count or len(places)
    chosen = places[torch.randperm(len(places))][:count]
    result, mask = torch.zeros(count, args.x.dim(), dtype=torch.int32), torch.zeros(count, dtype=torch.bool)
    result[: len(chosen)], mask[: len(chosen)] = chosen.int(), True
    return result, mask


@by_schema
def npu_sub_sample(args: Arguments) -> Tensor:
    result = torch.full_like(args.self, -1)
    left = args.per_images
    for label, most in ((1, int(args.per_images * args.positive_fraction + 1e-6)), (0, args.per_images)):
        places = (args.self == label).nonzero().flatten()
        chosen = places[torch.randperm(len(places))][: min(most, left)]
        result[chosen] = label
        left -= len(chosen)
    return result


@by_schema
def npu_top_k_top_p(args: Arguments) -> Tensor:
    result = args.logits.clone()
    for number, row in enumerate(result):
        if args.k is not None:
            row[row < row.sort(descending=True).values[int(args.k[number]) - 1]] = -torch.inf
        if args.p is not None:
            order = row.argsort(stable=True)
            total = 0.0
            shares = row.double().softmax(0)
            for place in order[:-1].tolist():
                total += float(shares[place])
                if total <= 1 - float(args.p[number]):
                    row[place] = -torch.inf
    return result


@by_schema
def npu_top_k_top_p_sample(args: Arguments) -> tuple[Tensor, Tensor]:
    tokens = torch.empty(len(args.logits), dtype=torch.int64)
    gone = -torch.inf if args.input_is_logits else 0.0
    selected = torch.full(args.logits.shape, gone, dtype=torch.float32)
    for number, row in enumerate(args.logits.double()):
        k, p = int(args.top_k[number]), float(args.top_p[number])
        is_cut = 1 <= k <= min(len(row), -(-min(int(args.ks_max or 1024), 1024) // 8) * 8)
        order = row.argsort(descending=True, stable=True).tolist() if is_cut or p < 1 else list(range(len(row)))
        order = order[:k] if is_cut else order
        shares = row[order].softmax(0) if args.input_is_logits else row[order]
        if p < 1:
            before = shares.cumsum(0) - shares
            order = [place for rank, place in enumerate(order) if rank == 0 or (p > 0 and float(before[rank]) <= p)]
        if args.min_ps is not None and float(args.min_ps[number]) > 0:
            least = float(shares.max()) * min(float(args.min_ps[number]), 1.0)
            order = [place for place, share in zip(order, shares.tolist(), strict=False) if share >= least]
        left = row[order].softmax(0) if args.input_is_logits else row[order]
        if str(args.post_sample).lower() == "multinomial":
            best = int(torch.multinomial(left, 1))
        else:
            weights = (
                left
                if args.q is None or args.post_sample == "None"
                else left / (args.q[number, : len(order)].abs() + float(args.eps or 0))
            )
            best = int(weights.argmax())
        tokens[number] = order[best]
        selected[number, order] = row[order].float()
    return tokens, selected if args.is_need_logits else torch.empty(0)


def _bits(count: int, p: float, generator: torch.Generator) -> Tensor:
    kept = torch.zeros(-(-count // 128) * 128, dtype=torch.int64)
    kept[:count] = (torch.rand(count, generator=generator, dtype=torch.float64) >= p).long()
    return (kept.view(-1, 8) << torch.arange(8)).sum(1).to(torch.uint8)

"""Gating of a mixture of experts and the counting of its tokens, written token by token."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema


def _softmax(numbers: list[float]) -> list[float]:
    top = max(numbers)
    powers = [math.exp(number - top) for number in numbers]
    return [power / math.fsum(powers) for power in powers]


def _best(scores: list[float], count: int) -> list[int]:
    """The places of the largest scores, the lower one first among equals."""
    return sorted(range(len(scores)), key=lambda place: (-scores[place], place))[:count]


@by_schema
def npu_moe_gating_top_k_softmax_v2(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    rows = args.x.double().reshape(-1, args.x.shape[-1]).tolist()
    done = [False] * len(rows) if args.finished is None else args.finished.flatten().tolist()
    chosen = [_best(row, args.k) for row in rows]
    all_of_them = [_softmax(row) for row in rows]
    if args.renorm == 1:
        weights = [_softmax([row[e] for e in best]) for row, best in zip(rows, chosen, strict=True)]
    else:
        weights = [[soft[e] for e in best] for soft, best in zip(all_of_them, chosen, strict=True)]
    ids = [[args.x.shape[-1]] * args.k if is_done else best for best, is_done in zip(chosen, done, strict=True)]
    third = (
        torch.tensor(all_of_them).reshape(args.x.shape) if args.output_softmax and args.renorm != 1 else torch.empty(0)
    )
    shape = (*args.x.shape[:-1], args.k)
    return (
        torch.tensor(weights, dtype=args.x.dtype).reshape(shape),
        torch.tensor(ids, dtype=torch.int32).reshape(shape),
        third.float(),
    )


@by_schema
def npu_moe_gating_top_k(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    norms, weights, ids = [], [], []
    size = args.x.shape[1] // args.group_count
    for row in args.x.double().tolist():
        norm = [1 / (1 + math.exp(-number)) for number in row] if args.norm_type == 1 else _softmax(row)
        scores = norm if args.bias is None else [a + b for a, b in zip(norm, args.bias.double().tolist(), strict=True)]
        groups = [sorted(scores[g * size : (g + 1) * size], reverse=True) for g in range(args.group_count)]
        kept = _best([sum(group[: 2 if args.group_select_mode == 1 else 1]) for group in groups], args.k_group)
        open_to = [score if place // size in kept else -math.inf for place, score in enumerate(scores)]
        best = _best(open_to, args.k)
        y = [norm[place] for place in best]
        total = sum(y) + args.eps if args.norm_type == 1 else 1.0
        norms.append(norm)
        ids.append(best)
        weights.append([each / total * args.routed_scaling_factor for each in y])
    return torch.tensor(weights, dtype=args.x.dtype), torch.tensor(ids, dtype=torch.int32), torch.tensor(norms).float()


@by_schema
def npu_moe_gating_top_k_backward(args: Arguments) -> Tensor:
    rows = zip(args.x_norm.double().tolist(), args.grad_y.double().tolist(), args.expertIdx.tolist(), strict=True)
    out = torch.zeros(args.x_norm.shape, dtype=torch.float64)
    for row, (norm, grad, best) in enumerate(rows):
        # one entry of the Jacobian at a time
        total = sum(norm[e] for e in best) + args.eps
        for j, e in enumerate(best):
            for i, source in enumerate(best):
                change = (float(i == j) - norm[source] / total) / total if args.norm_type == 1 else float(i == j)
                slopes = [(e, norm[e] * (1 - norm[e]))]
                if args.norm_type == 0:
                    slopes = [(o, norm[e] * (float(o == e) - norm[o])) for o in range(len(norm))]
                for place, slope in slopes:
                    out[row, place] += grad[i] * change * args.routed_scaling_factor * slope
    return out.to(args.grad_y.dtype)


@by_schema
def npu_moe_update_expert(args: Arguments) -> tuple[Tensor, Tensor]:
    places = torch.zeros_like(args.expert_ids)
    kept = torch.ones(args.expert_ids.shape, dtype=torch.bool)
    for token, row in enumerate(args.expert_ids.tolist()):
        for j, expert in enumerate(row):
            copies, *cards = args.eplb_table[expert].tolist()
            copy = (
                args.local_rank_id // math.ceil(args.world_size / copies) if args.balance_mode == 0 else token % copies
            )
            places[token, j] = cards[copy]
            if args.expert_scales is not None and args.pruning_threshold is not None:
                scales = args.expert_scales[token].double().tolist()
                is_large = scales[j] >= float(args.pruning_threshold.flatten()[j]) * sum(scales)
                kept[token, j] = is_large and (args.active_mask is None or bool(args.active_mask[token]))
    return places, kept


@by_schema
def npu_moe_compute_expert_tokens(args: Arguments) -> Tensor:
    experts = args.sorted_expert_for_source_row.tolist()
    return torch.tensor([sum(e <= last for e in experts) for last in range(args.num_expert)], dtype=torch.int32)

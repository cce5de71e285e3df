"""Gating of a mixture of experts and the counting of its tokens, written token by token."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def _softmax(numbers: list[float]) -> list[float]:
    top = max(numbers)
    powers = [math.exp(number - top) for number in numbers]
    return [power / math.fsum(powers) for power in powers]


def _best(scores: list[float], count: int) -> list[int]:
    """The places of the largest scores, the lower one first among equals."""
    return sorted(range(len(scores)), key=lambda place: (-scores[place], place))[:count]


def npu_moe_gating_top_k_softmax_v2(
    x: Tensor,
    *,
    k: int = 1,
    finished: Tensor | None = None,
    renorm: int | None = 0,
    output_softmax: bool | None = False,
) -> tuple[Tensor, Tensor, Tensor]:
    rows = x.double().reshape(-1, x.shape[-1]).tolist()
    done = [False] * len(rows) if finished is None else finished.flatten().tolist()
    chosen = [_best(row, k) for row in rows]
    all_of_them = [_softmax(row) for row in rows]
    if renorm == 1:
        weights = [_softmax([row[e] for e in best]) for row, best in zip(rows, chosen, strict=True)]
    else:
        weights = [[soft[e] for e in best] for soft, best in zip(all_of_them, chosen, strict=True)]
    ids = [[x.shape[-1]] * k if is_done else best for best, is_done in zip(chosen, done, strict=True)]
    third = torch.tensor(all_of_them).reshape(x.shape) if output_softmax and renorm != 1 else torch.empty(0)
    shape = (*x.shape[:-1], k)
    return (
        torch.tensor(weights, dtype=x.dtype).reshape(shape),
        torch.tensor(ids, dtype=torch.int32).reshape(shape),
        third.float(),
    )


def npu_moe_gating_top_k(
    x: Tensor,
    k: int,
    *,
    bias: Tensor | None = None,
    input_ids: Tensor | None = None,
    tid2eid: Tensor | None = None,
    k_group: int = 1,
    group_count: int = 1,
    group_select_mode: int = 0,
    renorm: int = 0,
    norm_type: int = 0,
    out_flag: bool = False,
    routed_scaling_factor: float = 1.0,
    eps: float = 1e-20,
) -> tuple[Tensor, Tensor, Tensor]:
    norms, weights, ids = [], [], []
    size = x.shape[1] // group_count
    for row in x.double().tolist():
        norm = [1 / (1 + math.exp(-number)) for number in row] if norm_type == 1 else _softmax(row)
        scores = norm if bias is None else [a + b for a, b in zip(norm, bias.double().tolist(), strict=True)]
        groups = [sorted(scores[g * size : (g + 1) * size], reverse=True) for g in range(group_count)]
        kept = _best([sum(group[: 2 if group_select_mode == 1 else 1]) for group in groups], k_group)
        open_to = [score if place // size in kept else -math.inf for place, score in enumerate(scores)]
        best = _best(open_to, k)
        y = [norm[place] for place in best]
        total = sum(y) + eps if norm_type == 1 else 1.0
        norms.append(norm)
        ids.append(best)
        weights.append([each / total * routed_scaling_factor for each in y])
    return torch.tensor(weights, dtype=x.dtype), torch.tensor(ids, dtype=torch.int32), torch.tensor(norms).float()


def npu_moe_gating_top_k_backward(
    x_norm: Tensor,
    grad_y: Tensor,
    expertIdx: Tensor,  # noqa: N803
    *,
    renorm: int = 0,
    norm_type: int = 0,
    routed_scaling_factor: float = 1.0,
    eps: float = 1e-20,
) -> Tensor:
    rows = zip(x_norm.double().tolist(), grad_y.double().tolist(), expertIdx.tolist(), strict=True)
    out = torch.zeros(x_norm.shape, dtype=torch.float64)
    for row, (norm, grad, best) in enumerate(rows):
        # one entry of the Jacobian at a time
        total = sum(norm[e] for e in best) + eps
        for j, e in enumerate(best):
            for i, source in enumerate(best):
                change = (float(i == j) - norm[source] / total) / total if norm_type == 1 else float(i == j)
                slopes = [(e, norm[e] * (1 - norm[e]))]
                if norm_type == 0:
                    slopes = [(o, norm[e] * (float(o == e) - norm[o])) for o in range(len(norm))]
                for place, slope in slopes:
                    out[row, place] += grad[i] * change * routed_scaling_factor * slope
    return out.to(grad_y.dtype)


def npu_moe_update_expert(
    expert_ids: Tensor,
    eplb_table: Tensor,
    *,
    expert_scales: Tensor | None = None,
    pruning_threshold: Tensor | None = None,
    active_mask: Tensor | None = None,
    local_rank_id: int = -1,
    world_size: int = -1,
    balance_mode: int = 0,
) -> tuple[Tensor, Tensor]:
    places = torch.zeros_like(expert_ids)
    kept = torch.ones(expert_ids.shape, dtype=torch.bool)
    for token, row in enumerate(expert_ids.tolist()):
        for j, expert in enumerate(row):
            copies, *cards = eplb_table[expert].tolist()
            copy = local_rank_id // math.ceil(world_size / copies) if balance_mode == 0 else token % copies
            places[token, j] = cards[copy]
            if expert_scales is not None and pruning_threshold is not None:
                scales = expert_scales[token].double().tolist()
                is_large = scales[j] >= float(pruning_threshold.flatten()[j]) * sum(scales)
                kept[token, j] = is_large and (active_mask is None or bool(active_mask[token]))
    return places, kept


def npu_moe_compute_expert_tokens(sorted_expert_for_source_row: Tensor, num_expert: int) -> Tensor:
    experts = sorted_expert_for_source_row.tolist()
    return torch.tensor([sum(e <= last for e in experts) for last in range(num_expert)], dtype=torch.int32)

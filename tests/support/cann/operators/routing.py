"""Ways of tokens to their experts and back, written copy by copy."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def _by_expert(indices: Tensor) -> list[tuple[int, int]]:
    """The copies (token, which of its choices) in the order of their experts."""
    table = indices.reshape(len(indices), -1).tolist()
    copies = [(token, choice) for token, row in enumerate(table) for choice in range(len(row))]
    return sorted(copies, key=lambda copy: table[copy[0]][copy[1]])


def npu_moe_token_permute(
    tokens: Tensor, indices: Tensor, num_out_tokens: int | None = None, padded_mode: bool = False
) -> tuple[Tensor, Tensor]:
    order = _by_expert(indices)
    choices = indices.shape[1] if indices.dim() > 1 else 1
    places = torch.zeros(len(order), dtype=torch.int32)
    for place, (token, choice) in enumerate(order):
        places[token * choices + choice] = place
    kept = order[: num_out_tokens or None]
    return torch.stack([tokens[token] for token, _ in kept]), places


def npu_moe_token_permute_grad_v2(
    grad_permuted_tokens: Tensor,
    sorted_indices: Tensor,
    tokens_size_0: int,
    tokens_dtype: torch.dtype,
    num_topK: int,  # noqa: N803
    padded_mode: bool = False,
) -> Tensor:
    out = torch.zeros(tokens_size_0, grad_permuted_tokens.shape[1], dtype=torch.float64)
    for copy, place in enumerate(sorted_indices.tolist()):
        if place < len(grad_permuted_tokens):
            out[copy // num_topK] += grad_permuted_tokens[place]
    return out.to(tokens_dtype)


def npu_moe_token_permute_grad(
    tokens: Tensor, grad_permuted_tokens: Tensor, indices: Tensor, sorted_indices: Tensor, padded_mode: bool = False
) -> Tensor:
    copies = indices.numel() // len(tokens)
    return npu_moe_token_permute_grad_v2(grad_permuted_tokens, sorted_indices, len(tokens), tokens.dtype, copies)


def npu_moe_token_unpermute(
    permuted_tokens: Tensor,
    sorted_indices: Tensor,
    probs: Tensor | None = None,
    padded_mode: bool = False,
    restore_shape: Sequence[int] | None = None,
) -> Tensor:
    copies = 1 if probs is None else probs.shape[1]
    weights = [1.0] * len(sorted_indices) if probs is None else probs.double().flatten().tolist()
    out = torch.zeros(len(sorted_indices) // copies, permuted_tokens.shape[1], dtype=torch.float64)
    for copy, place in enumerate(sorted_indices.tolist()):
        if place < len(permuted_tokens):
            out[copy // copies] += weights[copy] * permuted_tokens[place].double()
    return out.to(permuted_tokens.dtype)


def _npu_moe_token_unpermute(
    permuted_tokens: Tensor,
    sorted_indices: Tensor,
    probs: Tensor | None = None,
    padded_mode: bool = False,
    restore_shape: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor]:
    return npu_moe_token_unpermute(permuted_tokens, sorted_indices, probs), permuted_tokens.clone()


def npu_moe_token_unpermute_grad_v2(
    grad_unpermuted_tokens: Tensor,
    sorted_indices: Tensor,
    permuted_tokens_size_0: int,
    permuted_tokens_dtype: torch.dtype,
    probs: Tensor | None = None,
    padded_mode: bool = False,
    restore_shape: Sequence[int] | None = None,
    permuted_tokens: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    copies = len(sorted_indices) // len(grad_unpermuted_tokens)
    out = torch.zeros(permuted_tokens_size_0, grad_unpermuted_tokens.shape[1], dtype=torch.float64)
    of_probs = torch.zeros(len(grad_unpermuted_tokens), copies, dtype=torch.float64)
    for copy, place in enumerate(sorted_indices.tolist()):
        token, choice = divmod(copy, copies)
        grad = grad_unpermuted_tokens[token].double()
        if place < permuted_tokens_size_0:
            out[place] = grad * (1.0 if probs is None else float(probs[token, choice]))
            if permuted_tokens is not None:
                of_probs[token, choice] = grad @ permuted_tokens[place].double()
    return out.to(permuted_tokens_dtype), of_probs.to(torch.float32 if probs is None else probs.dtype)


def npu_moe_token_unpermute_grad(
    permuted_tokens: Tensor,
    grad_unpermuted_tokens: Tensor,
    sorted_indices: Tensor,
    probs: Tensor | None = None,
    padded_mode: bool = False,
    restore_shape: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor]:
    size, dtype = len(permuted_tokens), permuted_tokens.dtype
    return npu_moe_token_unpermute_grad_v2(
        grad_unpermuted_tokens, sorted_indices, size, dtype, probs, permuted_tokens=permuted_tokens
    )


def npu_moe_init_routing(
    x: Tensor, row_idx: Tensor, expert_idx: Tensor, active_num: int
) -> tuple[Tensor, Tensor, Tensor]:
    rows, k = expert_idx.shape
    pairs = sorted(
        enumerate(zip(expert_idx.flatten().tolist(), row_idx.flatten().tolist(), strict=True)), key=lambda p: p[1][0]
    )
    went = torch.zeros(rows * k, dtype=torch.int32)
    for place, (_, (_, copy)) in enumerate(pairs):
        went[copy] = place
    kept = pairs[: min(active_num, rows) * k]
    experts = torch.tensor([expert for _, (expert, _) in pairs], dtype=expert_idx.dtype)
    return torch.stack([x[copy % rows] for _, (_, copy) in kept]), went, experts


def npu_moe_init_routing_v2(
    x: Tensor,
    expert_idx: Tensor,
    *,
    scale: Tensor | None = None,
    offset: Tensor | None = None,
    active_num: int = -1,
    expert_capacity: int = -1,
    expert_num: int = -1,
    drop_pad_mode: int = 0,
    expert_tokens_num_type: int = 0,
    expert_tokens_num_flag: bool = False,
    quant_mode: int = -1,
    active_expert_range: Sequence[int] = (),
    row_idx_type: int = 0,
    x_dtype: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    order, k = _by_expert(expert_idx), expert_idx.shape[1]
    first, last = active_expert_range or (0, expert_num)
    counts = [int((expert_idx == expert).sum()) for expert in range(first, last)]
    if expert_tokens_num_type == 0:
        counts = [sum(counts[: last + 1]) for last in range(len(counts))]
    came = torch.tensor([token * k + choice for token, choice in order], dtype=torch.int32)
    went = torch.zeros_like(came)
    for place, copy in enumerate(came.tolist()):
        went[copy] = place
    rows = torch.stack([x[token] for token, _ in order])
    scales = torch.zeros(len(order)) if scale is None else torch.stack([scale[token] for token, _ in order])
    if quant_mode == 1:
        scales = rows.float().abs().amax(1) / 127
        rows = (rows.float() / scales[:, None]).round().to(torch.int8)
    return rows, came if row_idx_type == 1 else went, torch.tensor(counts), scales


def npu_moe_finalize_routing(
    expanded_permuted_rows: Tensor,
    skip1: Tensor | None,
    skip2: Tensor | None,
    bias: Tensor | None,
    scales: Tensor | None,
    expanded_src_to_dst_row: Tensor,
    export_for_source_row: Tensor | None,
    drop_pad_mode: int | None = 0,
    k: int | None = 1,
) -> Tensor:
    copies = k or 1
    for table in (export_for_source_row, scales):
        copies = copies if table is None else table.shape[1]
    rows = len(expanded_src_to_dst_row) // copies
    out = torch.zeros(rows, expanded_permuted_rows.shape[1], dtype=torch.float64)
    for i in range(rows):
        for skip in (skip1, skip2):
            out[i] += 0.0 if skip is None else skip[i]
        for j in range(copies):
            entry = i * copies + j if drop_pad_mode == 2 else j * rows + i
            copy = expanded_permuted_rows[int(expanded_src_to_dst_row[entry])].double()
            if bias is not None and export_for_source_row is not None:
                copy = copy + bias[int(export_for_source_row[i, j])]
            out[i] += copy * (1.0 if scales is None else float(scales[i, j]))
    return out.to(expanded_permuted_rows.dtype)


def npu_moe_re_routing(
    tokens: Tensor,
    expert_token_num_per_rank: Tensor,
    *,
    per_token_scales: Tensor | None = None,
    expert_token_num_type: int = 1,
    idx_type: int = 0,
    tokens_dtype: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    counts, owners = expert_token_num_per_rank.tolist(), []
    for rank, row in enumerate(counts):
        owners += [(expert, rank) for expert, count in enumerate(row) for _ in range(count)]
    order = sorted(range(len(owners)), key=lambda place: owners[place])
    scales = torch.empty(0) if per_token_scales is None else torch.stack([per_token_scales[place] for place in order])
    totals = torch.tensor([sum(each) for each in zip(*counts, strict=True)], dtype=expert_token_num_per_rank.dtype)
    return torch.stack([tokens[place] for place in order]), scales, torch.tensor(order, dtype=torch.int32), totals

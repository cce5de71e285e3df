"""Ways of tokens to their experts and back, written copy by copy."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema


def _by_expert(indices: Tensor) -> list[tuple[int, int]]:
    """The copies (token, which of its choices) in the order of their experts."""
    table = indices.reshape(len(indices), -1).tolist()
    copies = [(token, choice) for token, row in enumerate(table) for choice in range(len(row))]
    return sorted(copies, key=lambda copy: table[copy[0]][copy[1]])


@by_schema
def npu_moe_token_permute(args: Arguments) -> tuple[Tensor, Tensor]:
    order = _by_expert(args.indices)
    choices = args.indices.shape[1] if args.indices.dim() > 1 else 1
    places = torch.zeros(len(order), dtype=torch.int32)
    for place, (token, choice) in enumerate(order):
        places[token * choices + choice] = place
    kept = order[: args.num_out_tokens or None]
    return torch.stack([args.tokens[token] for token, _ in kept]), places


@by_schema
def npu_moe_token_permute_grad_v2(args: Arguments) -> Tensor:
    out = torch.zeros(args.tokens_size_0, args.grad_permuted_tokens.shape[1], dtype=torch.float64)
    for copy, place in enumerate(args.sorted_indices.tolist()):
        if place < len(args.grad_permuted_tokens):
            out[copy // args.num_topK] += args.grad_permuted_tokens[place]
    return out.to(args.tokens_dtype)


@by_schema
def npu_moe_token_permute_grad(args: Arguments) -> Tensor:
    copies = args.indices.numel() // len(args.tokens)
    return npu_moe_token_permute_grad_v2(
        args.grad_permuted_tokens, args.sorted_indices, len(args.tokens), args.tokens.dtype, copies
    )


@by_schema
def npu_moe_token_unpermute(args: Arguments) -> Tensor:
    copies = 1 if args.probs is None else args.probs.shape[1]
    weights = [1.0] * len(args.sorted_indices) if args.probs is None else args.probs.double().flatten().tolist()
    out = torch.zeros(len(args.sorted_indices) // copies, args.permuted_tokens.shape[1], dtype=torch.float64)
    for copy, place in enumerate(args.sorted_indices.tolist()):
        if place < len(args.permuted_tokens):
            out[copy // copies] += weights[copy] * args.permuted_tokens[place].double()
    return out.to(args.permuted_tokens.dtype)


@by_schema
def _npu_moe_token_unpermute(args: Arguments) -> tuple[Tensor, Tensor]:
    return npu_moe_token_unpermute(args.permuted_tokens, args.sorted_indices, args.probs), args.permuted_tokens.clone()


@by_schema
def npu_moe_token_unpermute_grad_v2(args: Arguments) -> tuple[Tensor, Tensor]:
    copies = len(args.sorted_indices) // len(args.grad_unpermuted_tokens)
    out = torch.zeros(args.permuted_tokens_size_0, args.grad_unpermuted_tokens.shape[1], dtype=torch.float64)
    of_probs = torch.zeros(len(args.grad_unpermuted_tokens), copies, dtype=torch.float64)
    for copy, place in enumerate(args.sorted_indices.tolist()):
        token, choice = divmod(copy, copies)
        grad = args.grad_unpermuted_tokens[token].double()
        if place < args.permuted_tokens_size_0:
            out[place] = grad * (1.0 if args.probs is None else float(args.probs[token, choice]))
            if args.permuted_tokens is not None:
                of_probs[token, choice] = grad @ args.permuted_tokens[place].double()
    return out.to(args.permuted_tokens_dtype), of_probs.to(torch.float32 if args.probs is None else args.probs.dtype)


@by_schema
def npu_moe_token_unpermute_grad(args: Arguments) -> tuple[Tensor, Tensor]:
    size, dtype = len(args.permuted_tokens), args.permuted_tokens.dtype
    return npu_moe_token_unpermute_grad_v2(
        args.grad_unpermuted_tokens, args.sorted_indices, size, dtype, args.probs, permuted_tokens=args.permuted_tokens
    )


@by_schema
def npu_moe_init_routing(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    rows, k = args.expert_idx.shape
    pairs = sorted(
        enumerate(zip(args.expert_idx.flatten().tolist(), args.row_idx.flatten().tolist(), strict=True)),
        key=lambda p: p[1][0],
    )
    went = torch.zeros(rows * k, dtype=torch.int32)
    for place, (_, (_, copy)) in enumerate(pairs):
        went[copy] = place
    kept = pairs[: min(args.active_num, rows) * k]
    experts = torch.tensor([expert for _, (expert, _) in pairs], dtype=args.expert_idx.dtype)
    return torch.stack([args.x[copy % rows] for _, (_, copy) in kept]), went, experts


@by_schema
def npu_moe_init_routing_v2(args: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    order, k = _by_expert(args.expert_idx), args.expert_idx.shape[1]
    first, last = args.active_expert_range or (0, args.expert_num)
    counts = [int((args.expert_idx == expert).sum()) for expert in range(first, last)]
    if args.expert_tokens_num_type == 0:
        counts = [sum(counts[: last + 1]) for last in range(len(counts))]
    came = torch.tensor([token * k + choice for token, choice in order], dtype=torch.int32)
    went = torch.zeros_like(came)
    for place, copy in enumerate(came.tolist()):
        went[copy] = place
    rows = torch.stack([args.x[token] for token, _ in order])
    scales = torch.zeros(len(order))
    if args.scale is not None and args.quant_mode != 1:
        scales = torch.stack([args.scale[token] for token, _ in order])
    if args.quant_mode == 1:
        wide = rows.double()
        if args.scale is not None:
            smooth = [args.scale[int(args.expert_idx[copy]) - first if len(args.scale) > 1 else 0] for copy in order]
            wide = torch.stack([row * each.double() for row, each in zip(wide, smooth, strict=True)])
        scales = (wide.abs().amax(1) / 127).float()
        rows = (wide / scales.double()[:, None]).round().to(torch.int8)
    return rows, came if args.row_idx_type == 1 else went, torch.tensor(counts), scales


@by_schema
def npu_moe_finalize_routing(args: Arguments) -> Tensor:
    copies = args.k or 1
    for table in (args.export_for_source_row, args.scales):
        copies = copies if table is None else table.shape[1]
    rows = len(args.expanded_src_to_dst_row) // copies
    out = torch.zeros(rows, args.expanded_permuted_rows.shape[1], dtype=torch.float64)
    for i in range(rows):
        for skip in (args.skip1, args.skip2):
            out[i] += 0.0 if skip is None else skip[i]
        for j in range(copies):
            entry = i * copies + j if args.drop_pad_mode == 2 else j * rows + i
            copy = args.expanded_permuted_rows[int(args.expanded_src_to_dst_row[entry])].double()
            if args.bias is not None and args.export_for_source_row is not None:
                copy = copy + args.bias[int(args.export_for_source_row[i, j])]
            out[i] += copy * (1.0 if args.scales is None else float(args.scales[i, j]))
    return out.to(args.expanded_permuted_rows.dtype)


@by_schema
def npu_moe_re_routing(args: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    counts, owners = args.expert_token_num_per_rank.tolist(), []
    for rank, row in enumerate(counts):
        owners += [(expert, rank) for expert, count in enumerate(row) for _ in range(count)]
    order = sorted(range(len(owners)), key=lambda place: owners[place])
    scales = (
        torch.empty(0)
        if args.per_token_scales is None
        else torch.stack([args.per_token_scales[place] for place in order])
    )
    totals = torch.tensor([sum(each) for each in zip(*counts, strict=True)], dtype=args.expert_token_num_per_rank.dtype)
    return torch.stack([args.tokens[place] for place in order]), scales, torch.tensor(order, dtype=torch.int32), totals

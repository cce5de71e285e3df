"""Ways of tokens to the experts that a map sends them to, and back, written copy by copy."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def _sent(routing_map: Tensor) -> list[tuple[int, int]]:
    """The copies (token, expert) by expert, then by token."""
    tokens, experts = routing_map.shape
    return [(token, expert) for expert in range(experts) for token in range(tokens) if routing_map[token, expert]]


def _filled_up(routing_map: Tensor, capacity: int) -> list[tuple[int, int]]:
    """The copies (token, expert) by expert, as many for each: those sent to it first, then others in their order."""
    copies = []
    for expert, sent in enumerate(routing_map.bool().T.tolist()):
        wanted = [token for token, is_sent in enumerate(sent) if is_sent]
        others = [token for token, is_sent in enumerate(sent) if not is_sent]
        copies += [(token, expert) for token in (wanted + others)[:capacity]]
    return copies


def npu_moe_token_permute_with_routing_map(
    tokens: Tensor,
    routing_map: Tensor,
    *,
    probs: Tensor | None = None,
    num_out_tokens: int | None = None,
    drop_and_pad: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    count, experts = routing_map.shape
    wanted = num_out_tokens or count
    copies = _filled_up(routing_map, wanted // experts) if drop_and_pad else _sent(routing_map)
    rows = range(len(copies))
    places = [copies[row][0] for row in rows] if drop_and_pad else sorted(rows, key=lambda row: copies[row][0])
    of_rows = torch.empty(0) if probs is None else torch.stack([probs[copy] for copy in copies])
    return torch.stack([tokens[token] for token, _ in copies]), of_rows, torch.tensor(places, dtype=torch.int32)


def npu_moe_token_permute_with_routing_map_grad(
    permuted_token_out_grad: Tensor,
    probs_grad: Tensor | None,
    sorted_indices: Tensor,
    routing_map: Tensor,
    experts_num: int,
    tokens_num: int,
    drop_and_pad: bool,
) -> tuple[Tensor, Tensor | None]:
    copies, rows = _copies(sorted_indices, routing_map, drop_and_pad), permuted_token_out_grad.double()
    out = torch.zeros(tokens_num, rows.shape[1], dtype=torch.float64)
    of_probs = torch.zeros(tokens_num, experts_num, dtype=torch.float64)
    for row, (token, expert) in enumerate(copies):
        out[token] += rows[row]
        of_probs[token, expert] += 0.0 if probs_grad is None or not len(probs_grad) else float(probs_grad[row])
    dtype = permuted_token_out_grad.dtype
    return out.to(dtype), None if probs_grad is None else of_probs.to(probs_grad.dtype)


def npu_moe_token_unpermute_with_routing_map(
    permuted_tokens: Tensor,
    sorted_indices: Tensor,
    restore_shape: Sequence[int],
    *,
    probs: Tensor | None = None,
    routing_map: Tensor | None = None,
    drop_and_pad: bool = False,
) -> Tensor:
    out = torch.zeros(*restore_shape, dtype=torch.float64)
    for row, (token, expert) in enumerate(_owners(sorted_indices, restore_shape[0], probs, routing_map, drop_and_pad)):
        out[token] += permuted_tokens[row].double() * (1.0 if probs is None else float(probs[token, expert]))
    return out.to(permuted_tokens.dtype)


def _npu_moe_token_unpermute_with_routing_map(
    permuted_tokens: Tensor,
    sorted_indices: Tensor,
    restore_shape: Sequence[int],
    *,
    probs: Tensor | None = None,
    routing_map: Tensor | None = None,
    drop_and_pad: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    out = npu_moe_token_unpermute_with_routing_map(
        permuted_tokens, sorted_indices, restore_shape, probs=probs, routing_map=routing_map, drop_and_pad=drop_and_pad
    )
    owners = _owners(sorted_indices, restore_shape[0], probs, routing_map, drop_and_pad)
    rows = sorted(range(len(owners)), key=lambda row: owners[row][0])
    of_rows = None if probs is None else torch.stack([probs[owner] for owner in owners])
    tokens = [owners[row][0] for row in rows]
    return out, torch.tensor(rows, dtype=torch.int32), torch.tensor(tokens, dtype=torch.int32), of_rows


def npu_moe_token_unpermute_with_routing_map_grad(
    unpermuted_tokens_grad: Tensor,
    out_index: Tensor,
    permuted_token_id: Tensor,
    routing_map: Tensor | None,
    permuted_tokens: Tensor | None,
    probs: Tensor | None,
    drop_and_pad: bool,
    restore_shape: Sequence[int],
) -> tuple[Tensor, Tensor | None]:
    grads, rows = unpermuted_tokens_grad.double(), out_index.tolist()
    owner = dict(zip(rows, permuted_token_id.tolist(), strict=True))
    if not drop_and_pad:
        # torch_npu gives the sorted indices again for the tokens; whose a row is follows from how often each was sent.
        sent = [len(rows) // len(grads)] * len(grads) if routing_map is None else routing_map.sum(1).tolist()
        tokens = [token for token, copies in enumerate(sent) for _ in range(copies)]
        owner = dict(zip(rows, tokens, strict=True))
    if probs is None or routing_map is None or permuted_tokens is None:
        return torch.stack([grads[owner[row]] for row in range(len(rows))]).to(unpermuted_tokens_grad.dtype), None
    if drop_and_pad:
        capacity = len(rows) // routing_map.shape[1]
        pairs = [(owner[row], row // capacity) for row in range(len(rows))]
    else:
        pairs = _sent(routing_map)
    out = torch.stack([grads[owner[row]] * float(probs[pair]) for row, pair in enumerate(pairs)])
    of_probs = torch.zeros(probs.shape, dtype=torch.float64)
    for row, pair in enumerate(pairs):
        of_probs[pair] += grads[owner[row]] @ permuted_tokens[row].double()
    return out.to(unpermuted_tokens_grad.dtype), of_probs.to(probs.dtype)


def _copies(sorted_indices: Tensor, routing_map: Tensor, drop_and_pad: bool) -> list[tuple[int, int]]:
    if not drop_and_pad:
        return _sent(routing_map)
    capacity = len(sorted_indices) // routing_map.shape[1]
    return [(token, row // capacity) for row, token in enumerate(sorted_indices.tolist())]


def _owners(
    sorted_indices: Tensor, tokens: int, probs: Tensor | None, routing_map: Tensor | None, drop_and_pad: bool
) -> list[tuple[int, int]]:
    """Of each permuted row its token and, where there are ``probs``, its expert."""
    places = sorted_indices.tolist()
    if drop_and_pad:
        capacity = len(places) if probs is None else len(places) // probs.shape[1]
        return [(token, row // capacity) for row, token in enumerate(places)]
    copies = len(places) // tokens
    token_of = {row: i // copies for i, row in enumerate(places)}
    sent = [] if routing_map is None or probs is None else _sent(routing_map)
    return [(token_of[row], sent[row][1] if sent else 0) for row in range(len(places))]

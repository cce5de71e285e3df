"""Ways of tokens to the experts that a map sends them to, and back, written copy by copy."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema


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


@by_schema
def npu_moe_token_permute_with_routing_map(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    count, experts = args.routing_map.shape
    wanted = args.num_out_tokens or count
    copies = _filled_up(args.routing_map, wanted // experts) if args.drop_and_pad else _sent(args.routing_map)
    rows = range(len(copies))
    places = [copies[row][0] for row in rows] if args.drop_and_pad else sorted(rows, key=lambda row: copies[row][0])
    of_rows = torch.empty(0) if args.probs is None else torch.stack([args.probs[copy] for copy in copies])
    return torch.stack([args.tokens[token] for token, _ in copies]), of_rows, torch.tensor(places, dtype=torch.int32)


@by_schema
def npu_moe_token_permute_with_routing_map_grad(args: Arguments) -> tuple[Tensor, Tensor | None]:
    copies, rows = (
        _copies(args.sorted_indices, args.routing_map, args.drop_and_pad),
        args.permuted_token_out_grad.double(),
    )
    out = torch.zeros(args.tokens_num, rows.shape[1], dtype=torch.float64)
    of_probs = torch.zeros(args.tokens_num, args.experts_num, dtype=torch.float64)
    for row, (token, expert) in enumerate(copies):
        out[token] += rows[row]
        of_probs[token, expert] += (
            0.0 if args.probs_grad is None or not len(args.probs_grad) else float(args.probs_grad[row])
        )
    dtype = args.permuted_token_out_grad.dtype
    return out.to(dtype), None if args.probs_grad is None else of_probs.to(args.probs_grad.dtype)


@by_schema
def npu_moe_token_unpermute_with_routing_map(args: Arguments) -> Tensor:
    out = torch.zeros(*args.restore_shape, dtype=torch.float64)
    for row, (token, expert) in enumerate(
        _owners(args.sorted_indices, args.restore_shape[0], args.probs, args.routing_map, args.drop_and_pad)
    ):
        out[token] += args.permuted_tokens[row].double() * (
            1.0 if args.probs is None else float(args.probs[token, expert])
        )
    return out.to(args.permuted_tokens.dtype)


@by_schema
def _npu_moe_token_unpermute_with_routing_map(args: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    out = npu_moe_token_unpermute_with_routing_map(
        args.permuted_tokens,
        args.sorted_indices,
        args.restore_shape,
        probs=args.probs,
        routing_map=args.routing_map,
        drop_and_pad=args.drop_and_pad,
    )
    owners = _owners(args.sorted_indices, args.restore_shape[0], args.probs, args.routing_map, args.drop_and_pad)
    rows = sorted(range(len(owners)), key=lambda row: owners[row][0])
    of_rows = None if args.probs is None else torch.stack([args.probs[owner] for owner in owners])
    tokens = [owners[row][0] for row in rows]
    return out, torch.tensor(rows, dtype=torch.int32), torch.tensor(tokens, dtype=torch.int32), of_rows


@by_schema
def npu_moe_token_unpermute_with_routing_map_grad(args: Arguments) -> tuple[Tensor, Tensor | None]:
    grads, rows = args.unpermuted_tokens_grad.double(), args.out_index.tolist()
    owner = dict(zip(rows, args.permuted_token_id.tolist(), strict=True))
    if not args.drop_and_pad:
        # torch_npu gives the sorted indices again for the tokens; whose a row is follows from how often each was sent.
        sent = [len(rows) // len(grads)] * len(grads) if args.routing_map is None else args.routing_map.sum(1).tolist()
        tokens = [token for token, copies in enumerate(sent) for _ in range(copies)]
        owner = dict(zip(rows, tokens, strict=True))
    if args.probs is None or args.routing_map is None or args.permuted_tokens is None:
        return torch.stack([grads[owner[row]] for row in range(len(rows))]).to(args.unpermuted_tokens_grad.dtype), None
    if args.drop_and_pad:
        capacity = len(rows) // args.routing_map.shape[1]
        pairs = [(owner[row], row // capacity) for row in range(len(rows))]
    else:
        pairs = _sent(args.routing_map)
    out = torch.stack([grads[owner[row]] * float(args.probs[pair]) for row, pair in enumerate(pairs)])
    of_probs = torch.zeros(args.probs.shape, dtype=torch.float64)
    for row, pair in enumerate(pairs):
        of_probs[pair] += grads[owner[row]] @ args.permuted_tokens[row].double()
    return out.to(args.unpermuted_tokens_grad.dtype), of_probs.to(args.probs.dtype)


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

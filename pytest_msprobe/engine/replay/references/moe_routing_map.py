"""Tokens on their way to experts and back, where a map (tokens, experts) says which token goes to which expert."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def npu_moe_token_permute_with_routing_map(
    tokens: Tensor,
    routing_map: Tensor,
    *,
    probs: Tensor | None = None,
    num_out_tokens: int | None = None,
    drop_and_pad: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return (tokens by expert, their ``probs``, sorted_indices in int32), without ``probs`` None for the second.

    Every token goes to k = num_out_tokens // tokens experts; sorted_indices are where the k copies of the first token
    are, of the second, and so on. With ``drop_and_pad`` each expert takes num_out_tokens // experts tokens, those that
    the map sends it first, in their order, and sorted_indices says which. Raises ValueError where the map sends a token
    to another number of experts than k.
    """
    count, experts = routing_map.shape
    sent = routing_map.bool().T
    wanted = count if num_out_tokens is None else num_out_tokens
    if drop_and_pad:
        taken = sent.byte().sort(dim=-1, descending=True, stable=True).indices[:, : wanted // experts]
        chosen = None if probs is None else probs.T.gather(1, taken).flatten()
        return tokens[taken.flatten()], chosen, taken.flatten().int()
    if bool((sent.sum(0) != wanted // count).any()):
        raise ValueError(f"routing_map sends tokens to other numbers of experts than {wanted // count}")
    senders = sent.nonzero()[:, 1]
    chosen = None if probs is None else probs.T.masked_select(sent)
    return tokens[senders], chosen, senders.argsort(stable=True).int()


def npu_moe_token_unpermute_with_routing_map(
    permuted_tokens: Tensor,
    sorted_indices: Tensor,
    restore_shape: Sequence[int],
    *,
    probs: Tensor | None = None,
    routing_map: Tensor | None = None,
    drop_and_pad: bool = False,
) -> Tensor:
    """Undo :func:`npu_moe_token_permute_with_routing_map`: the sum of a token's copies, weighted with ``probs``.

    ``restore_shape`` is that of the result, (tokens, h). ``probs`` is (tokens, experts), and ``routing_map`` is needed
    with it unless ``drop_and_pad``; otherwise ValueError is raised.
    """
    places = sorted_indices.long()
    if probs is not None:
        permuted_tokens = permuted_tokens * _weights(places, probs, routing_map, drop_and_pad).unsqueeze(-1)
    if drop_and_pad:
        nothing = torch.zeros(*restore_shape, dtype=permuted_tokens.dtype, device=permuted_tokens.device)
        return nothing.index_add(0, places, permuted_tokens)
    return permuted_tokens[places].reshape(restore_shape[0], -1, permuted_tokens.shape[-1]).sum(1)


def _weights(places: Tensor, probs: Tensor, routing_map: Tensor | None, drop_and_pad: bool) -> Tensor:
    """Return the probability of each permuted token."""
    if drop_and_pad:
        return probs.T.gather(1, places.reshape(probs.shape[1], -1)).flatten()
    if routing_map is None:
        raise ValueError("npu_moe_token_unpermute_with_routing_map needs routing_map with probs")
    return probs.T.masked_select(routing_map.bool().T)

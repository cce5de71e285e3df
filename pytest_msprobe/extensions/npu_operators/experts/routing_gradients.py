"""Gradients of the ways of tokens to their experts and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators.arguments import refuse
from pytest_msprobe.extensions.npu_operators.inputs import moe_routing as routing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


@golden("Aten.npu_moe_token_permute_grad_v2", OpInfo(constraint=routing.places_at(1)))
def npu_moe_token_permute_grad_v2(
    grad_permuted_tokens: Tensor,
    sorted_indices: Tensor,
    tokens_size_0: int,
    tokens_dtype: torch.dtype,
    num_topK: int,  # noqa: N803
    padded_mode: bool = False,
) -> Tensor:
    """Return the gradient of ``npu_moe_token_permute`` for its tokens, (tokens_size_0, h) in ``tokens_dtype``.

    It is the sum over a token's ``num_topK`` copies, which are where ``sorted_indices`` says; copies that were left out
    count as 0. Raises NotImplementedError for ``padded_mode``.
    """
    refuse("npu_moe_token_permute_grad_v2", padded_mode=padded_mode or None)
    copies = _copies(grad_permuted_tokens, sorted_indices)
    return copies.reshape(tokens_size_0, num_topK, -1).sum(1).to(tokens_dtype)


@golden("Aten.npu_moe_token_permute_grad", OpInfo(constraint=routing.places_at(3)))
def npu_moe_token_permute_grad(
    tokens: Tensor,
    grad_permuted_tokens: Tensor,
    indices: Tensor,
    sorted_indices: Tensor,
    padded_mode: bool = False,
) -> Tensor:
    """Return :func:`npu_moe_token_permute_grad_v2`, shaped as ``tokens``; ``indices`` say the number of copies."""
    refuse("npu_moe_token_permute_grad", padded_mode=padded_mode or None)
    choices = indices.shape[1] if indices.dim() > 1 else 1
    return npu_moe_token_permute_grad_v2(
        grad_permuted_tokens, sorted_indices, tokens.shape[0], tokens.dtype, choices, padded_mode
    )


@golden("Aten.npu_moe_token_unpermute_grad_v2", OpInfo(constraint=routing.places_at(1)))
def npu_moe_token_unpermute_grad_v2(
    grad_unpermuted_tokens: Tensor,
    sorted_indices: Tensor,
    permuted_tokens_size_0: int,
    permuted_tokens_dtype: torch.dtype,
    probs: Tensor | None = None,
    padded_mode: bool = False,
    restore_shape: Sequence[int] | None = None,
    permuted_tokens: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of ``npu_moe_token_unpermute`` for its tokens and ``probs``; None for the latter without.

    Copy j of token i has place sorted_indices[i * k + j]: grad[i] * probs[i, j] goes there, and its own gradient is
    the product of grad[i] with what is there. Raises NotImplementedError for ``padded_mode``, and ValueError for
    ``probs`` without ``permuted_tokens``.
    """
    refuse("npu_moe_token_unpermute_grad_v2", padded_mode=padded_mode or None)
    wide = grad_unpermuted_tokens
    choices = 1 if probs is None else probs.shape[1]
    per_copy = wide.repeat_interleave(choices, 0)
    grad_probs = None
    if probs is not None:
        if permuted_tokens is None:
            raise ValueError("npu_moe_token_unpermute_grad_v2 needs permuted_tokens with probs")
        grad_probs = (per_copy * _copies(permuted_tokens, sorted_indices)).sum(-1).reshape(probs.shape)
        per_copy = per_copy * probs.reshape(-1, 1)
    grad = wide.new_zeros(permuted_tokens_size_0, wide.shape[1], dtype=per_copy.dtype)
    is_there = (sorted_indices >= 0) & (sorted_indices < permuted_tokens_size_0)
    grad.index_add_(0, sorted_indices[is_there].long(), per_copy[is_there])
    return grad.to(permuted_tokens_dtype), None if probs is None or grad_probs is None else grad_probs.to(probs.dtype)


@golden("Aten.npu_moe_token_unpermute_grad", OpInfo(constraint=routing.places_at(2)))
def npu_moe_token_unpermute_grad(
    permuted_tokens: Tensor,
    grad_unpermuted_tokens: Tensor,
    sorted_indices: Tensor,
    probs: Tensor | None = None,
    padded_mode: bool = False,
    restore_shape: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return :func:`npu_moe_token_unpermute_grad_v2`, shaped as ``permuted_tokens``."""
    refuse("npu_moe_token_unpermute_grad", padded_mode=padded_mode or None)
    return npu_moe_token_unpermute_grad_v2(
        grad_unpermuted_tokens,
        sorted_indices,
        permuted_tokens.shape[0],
        permuted_tokens.dtype,
        probs,
        padded_mode,
        restore_shape,
        permuted_tokens,
    )


@golden("Aten.npu_moe_token_permute_with_routing_map_grad", OpInfo(constraint=routing.permuted_by_map))
def npu_moe_token_permute_with_routing_map_grad(
    permuted_token_out_grad: Tensor,
    probs_grad: Tensor | None,
    sorted_indices: Tensor,
    routing_map: Tensor,
    experts_num: int,
    tokens_num: int,
    drop_and_pad: bool,
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of ``npu_moe_token_permute_with_routing_map`` for its tokens and probabilities.

    They are (tokens_num, h) and (tokens_num, experts_num), None for the second where ``probs_grad`` is None or empty.
    With ``drop_and_pad`` sorted_indices[i] is the token of permuted row i, otherwise the row of a token's copy, the
    copies of the first token coming first. As CANN's documentation of ``aclnnMoeTokenPermuteWithRoutingMapGrad``.
    """
    width = permuted_token_out_grad.shape[1]
    rows = sorted_indices.long()
    if probs_grad is not None and not probs_grad.numel():
        probs_grad = None
    if not drop_and_pad:
        grad = permuted_token_out_grad[rows].reshape(tokens_num, -1, width).sum(1)
        return grad, None if probs_grad is None else _by_map(probs_grad, routing_map)
    grad = permuted_token_out_grad.new_zeros(tokens_num, width).index_add_(0, rows, permuted_token_out_grad)
    if probs_grad is None:
        return grad, None
    capacity = len(rows) // experts_num
    experts = torch.arange(len(rows), device=rows.device) // capacity
    spread = probs_grad.new_zeros(tokens_num, experts_num)
    return grad, spread.index_put((rows, experts), probs_grad, accumulate=True)


@golden("Aten.npu_moe_token_unpermute_with_routing_map_grad", OpInfo(constraint=routing.unpermuted_by_map))
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
    """Return the gradients of ``npu_moe_token_unpermute_with_routing_map`` for its tokens and ``probs``, None without.

    Row out_index[i] of the tokens belongs to token permuted_token_id[i], so it gets that token's gradient, times its
    probability. Without ``drop_and_pad`` the tokens take their rows by turns, k each, and the second index is not
    looked at: torch_npu's autograd gives the first one twice. As CANN's documentation of
    ``aclnnMoeTokenUnpermuteWithRoutingMapGrad``.

    Raises ValueError for ``probs`` without ``routing_map`` or ``permuted_tokens``.
    """
    rows, owners = out_index.long(), permuted_token_id.long()
    if not drop_and_pad:
        copies = len(rows) // len(unpermuted_tokens_grad)
        owners = torch.arange(len(rows), device=rows.device) // copies
    grad = unpermuted_tokens_grad.new_zeros(len(rows), unpermuted_tokens_grad.shape[1])
    grad[rows] = unpermuted_tokens_grad[owners]
    if probs is None:
        return grad, None
    if routing_map is None or permuted_tokens is None:
        raise ValueError("npu_moe_token_unpermute_with_routing_map_grad needs routing_map, permuted_tokens with probs")
    of_row = (grad * permuted_tokens).sum(-1)
    if not drop_and_pad:
        weights = probs.T.masked_select(routing_map.bool().T)
        return weights.unsqueeze(-1) * grad, _by_map(of_row, routing_map).to(probs.dtype)
    experts = rows // (len(rows) // probs.shape[1])
    weights = torch.zeros_like(of_row)
    weights[rows] = probs[owners, experts].to(weights.dtype)
    spread = torch.zeros_like(probs, dtype=of_row.dtype)
    spread = spread.index_put((owners, experts), of_row[rows], accumulate=True)
    return weights.unsqueeze(-1) * grad, spread.to(probs.dtype)


def _copies(permuted: Tensor, places: Tensor) -> Tensor:
    """Return the rows at ``places``, and zeros for those that were left out."""
    missing = (places < 0) | (places >= permuted.shape[0])
    if not permuted.shape[0]:
        return permuted.new_zeros(len(places), permuted.shape[1])
    return permuted[places.long().masked_fill(missing, 0)].masked_fill(missing.unsqueeze(-1), 0.0)


def _by_map(of_rows: Tensor, routing_map: Tensor) -> Tensor:
    """Spread what the rows have, expert by expert, over (tokens, experts); zero where a token is not sent."""
    sent = routing_map.bool().T
    return of_rows.new_zeros(sent.shape).masked_scatter(sent, of_rows).T

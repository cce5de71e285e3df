"""Ways back from the experts that also return what their gradients need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_msprobe.extensions.npu_operators.experts.moe_routing import (
    npu_moe_token_unpermute,
    npu_moe_token_unpermute_with_routing_map,
    weights_of_rows,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def _npu_moe_token_unpermute(
    permuted_tokens: Tensor,
    sorted_indices: Tensor,
    probs: Tensor | None = None,
    padded_mode: bool = False,
    restore_shape: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return (``npu_moe_token_unpermute``, its ``permuted_tokens``); nothing is promised of the latter without probs.

    Older versions of CANN keep the tokens in any case.
    """
    out = npu_moe_token_unpermute(permuted_tokens, sorted_indices, probs, padded_mode, restore_shape)
    return out, None if probs is None else permuted_tokens.detach()


def _npu_moe_token_unpermute_with_routing_map(
    permuted_tokens: Tensor,
    sorted_indices: Tensor,
    restore_shape: Sequence[int],
    *,
    probs: Tensor | None = None,
    routing_map: Tensor | None = None,
    drop_and_pad: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Return (``npu_moe_token_unpermute_with_routing_map``, out_index, permuted_token_id, permute_probs).

    permute_probs are the probabilities of the permuted tokens, None without ``probs``. With ``drop_and_pad`` the two
    indices (int32) are the rows by their tokens, and these tokens; rows of one token are assumed to keep their order.
    Otherwise nothing is promised of them, here None: CANN's documentation defines them for that mode alone.
    """
    out = npu_moe_token_unpermute_with_routing_map(
        permuted_tokens, sorted_indices, restore_shape, probs=probs, routing_map=routing_map, drop_and_pad=drop_and_pad
    )
    of_rows = None
    if probs is not None:
        of_rows = weights_of_rows(sorted_indices.long(), probs, routing_map, drop_and_pad).detach()
    if not drop_and_pad:
        return out, None, None, of_rows
    owners, rows = sorted_indices.sort(stable=True)
    return out, rows.to(torch.int32), owners.to(torch.int32), of_rows

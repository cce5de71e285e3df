"""Tokens on their way to experts and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators.arguments import at_least_float32, refuse
from pytest_msprobe.extensions.npu_operators.inputs import moe_routing as routing
from pytest_msprobe.extensions.npu_operators.quantization.quantization import quantized_by_row
from pytest_msprobe.extensions.npu_operators.quantization.quantized_results import EIGHT_BITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


@golden("NPU.npu_moe_token_permute")
def npu_moe_token_permute(
    tokens: Tensor, indices: Tensor, num_out_tokens: int | None = None, padded_mode: bool = False
) -> tuple[Tensor, Tensor]:
    """Return (tokens ordered by expert, where each of them went), for ``indices`` (tokens,) or (tokens, k).

    Tokens of one expert keep their order. Of the k * tokens copies the first ``num_out_tokens`` are returned, without
    the last -num_out_tokens where it is negative, all where it is 0; the places (int32) are those of all copies, in
    the order of the flattened ``indices``. Raises NotImplementedError for ``padded_mode``. Semantics of CANN's
    ``MoeTokenPermute``.
    """
    refuse("npu_moe_token_permute", padded_mode=padded_mode or None)
    order = indices.flatten().argsort(stable=True)
    requested = num_out_tokens or 0
    count = min(requested, order.numel()) if requested > 0 else requested + order.numel()
    choices = indices.shape[1] if indices.dim() > 1 else 1
    return tokens[order[:count] // choices], order.argsort().int()


@golden("NPU.npu_moe_token_unpermute", OpInfo(constraint=routing.token_unpermute))
def npu_moe_token_unpermute(
    permuted_tokens: Tensor,
    sorted_indices: Tensor,
    probs: Tensor | None = None,
    padded_mode: bool = False,
    restore_shape: Sequence[int] | None = None,
) -> Tensor:
    """Undo :func:`npu_moe_token_permute`: sum over a token's k copies, weighted with ``probs`` (tokens, k).

    Without ``probs`` each token has one copy. Copies that were left out count as 0. ``restore_shape`` belongs to
    ``padded_mode``, for which NotImplementedError is raised. Semantics of CANN's ``MoeTokenUnpermute``.
    """
    refuse("npu_moe_token_unpermute", padded_mode=padded_mode or None)
    places = sorted_indices.long()
    missing = places >= permuted_tokens.shape[0]
    copies = permuted_tokens[places.masked_fill(missing, 0)].masked_fill(missing.unsqueeze(-1), 0.0)
    if probs is None:
        return copies
    return (copies.reshape(*probs.shape, -1) * probs.unsqueeze(-1)).sum(1)


@golden("NPU.npu_moe_init_routing", OpInfo(constraint=routing.init_routing))
def npu_moe_init_routing(
    x: Tensor, row_idx: Tensor, expert_idx: Tensor, active_num: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (expanded_x, expanded_row_idx, expanded_expert_idx) of x (rows, h) and ``expert_idx`` (rows, k).

    The k * rows copies are ordered by expert, equals as they stood; ``row_idx`` says of each which copy it is, and
    copy c is of row c % rows. expanded_row_idx[c] is where copy c went; of expanded_x the first
    min(active_num, rows) * k are returned.
    """
    rows, k = expert_idx.shape
    experts, order = expert_idx.flatten().sort(stable=True)
    copies = row_idx.flatten()[order].long()
    went = torch.zeros_like(copies, dtype=torch.int32)
    went[copies] = torch.arange(copies.numel(), dtype=torch.int32, device=copies.device)
    return x[copies[: min(active_num, rows) * k] % rows], went, experts


@golden("NPU.npu_moe_compute_expert_tokens", OpInfo(constraint=routing.expert_tokens))
def npu_moe_compute_expert_tokens(sorted_expert_for_source_row: Tensor, num_expert: int) -> Tensor:
    """Return how many rows belong to the experts 0 to e, for each of ``num_expert`` experts e."""
    experts = torch.arange(num_expert, device=sorted_expert_for_source_row.device)
    ends = torch.searchsorted(sorted_expert_for_source_row.long(), experts, right=True)
    return ends.to(sorted_expert_for_source_row.dtype)


@golden("NPU.npu_moe_finalize_routing", OpInfo(constraint=routing.finalize_routing))
def npu_moe_finalize_routing(
    expanded_permuted_rows: Tensor, skip1: Tensor | None, skip2: Tensor | None, bias: Tensor | None,
    scales: Tensor | None, expanded_src_to_dst_row: Tensor, export_for_source_row: Tensor | None,
    drop_pad_mode: int | None = 0, k: int | None = 1,
) -> Tensor:  # fmt: skip
    """Return skip1 + skip2 + the sum over j of scales[:, j] * (row[:, j] + bias of its expert), (rows, h).

    ``expanded_src_to_dst_row`` says where the j-th copy of row i is among ``expanded_permuted_rows``: its entry
    j * rows + i, with ``drop_pad_mode`` 2 its entry i * K + j. The number of copies is that of ``scales``, of
    ``export_for_source_row``, or ``k``. Raises NotImplementedError for the modes 1 and 3, that drop tokens, and
    ValueError for ``bias`` without ``export_for_source_row``, which says whose it is.
    """
    if bias is not None and export_for_source_row is None:
        raise ValueError("bias of npu_moe_finalize_routing needs export_for_source_row")
    refuse("npu_moe_finalize_routing", drop_pad_mode=drop_pad_mode if drop_pad_mode in (1, 3) else None)
    per_row = scales if scales is not None else export_for_source_row
    copies_of_a_row = (k or 1) if per_row is None else per_row.shape[1]
    places = expanded_src_to_dst_row.long()
    # (rows, copies of a row)
    places = places.reshape(-1, copies_of_a_row) if drop_pad_mode == 2 else places.reshape(copies_of_a_row, -1).T
    copies = expanded_permuted_rows[places]
    if bias is not None and export_for_source_row is not None:
        copies = copies + bias[export_for_source_row.long()]
    out = copies.sum(1) if scales is None else (copies * scales.unsqueeze(-1)).sum(1)
    for skip in (skip1, skip2):
        out = out if skip is None else out + skip
    return out


@golden("NPU.npu_moe_re_routing", OpInfo(constraint=routing.re_routing))
def npu_moe_re_routing(
    tokens: Tensor,
    expert_token_num_per_rank: Tensor,
    *,
    per_token_scales: Tensor | None = None,
    expert_token_num_type: int = 1,
    idx_type: int = 0,
    tokens_dtype: int | None = None,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Permute tokens that came rank by rank, in each by expert, into the order of experts, in each by rank.

    ``expert_token_num_per_rank`` is (ranks, experts). Returns (tokens, their scales, their former places in int32,
    tokens of each expert); nothing is promised of the scales, here None, without ``per_token_scales``. Raises
    NotImplementedError for another ``expert_token_num_type`` or ``idx_type``. ``tokens_dtype`` names the numbers that
    the tokens' bytes are; they are moved as they are.
    """
    refuse(
        "npu_moe_re_routing",
        expert_token_num_type=None if expert_token_num_type == 1 else expert_token_num_type,
        idx_type=idx_type or None,
    )
    counts = expert_token_num_per_rank.long()
    experts = torch.arange(counts.shape[1], device=counts.device).repeat(counts.shape[0])
    order = experts.repeat_interleave(counts.flatten()).argsort(stable=True)
    scales = None if per_token_scales is None else per_token_scales[order]
    return tokens[order], scales, order.int(), counts.sum(0).to(expert_token_num_per_rank.dtype)


@golden("NPU.npu_moe_init_routing_v2", OpInfo(quantizes=EIGHT_BITS))
def npu_moe_init_routing_v2(
    x: Tensor, expert_idx: Tensor,
    *, scale: Tensor | None = None, offset: Tensor | None = None, active_num: int = -1,
    expert_capacity: int = -1, expert_num: int = -1, drop_pad_mode: int = 0, expert_tokens_num_type: int = 0,
    expert_tokens_num_flag: bool = False, quant_mode: int = -1, active_expert_range: Sequence[int] = (),
    row_idx_type: int = 0, x_dtype: int | None = None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """Return (expanded_x, expanded_row_idx, expert_tokens, expanded_scale) of x (rows, h) and ``expert_idx`` (rows, k).

    The rows * k copies are ordered by expert, equals as they stood. expanded_row_idx (int32) says where each went, with
    ``row_idx_type`` 1 which came. expert_tokens (int64) counts the copies of each expert in ``active_expert_range``,
    with ``expert_tokens_num_type`` 0 up to each. ``quant_mode`` is -1, then expanded_scale is that of each copy's row,
    or 1: rows of int8 with their scale, multiplied before with the row of ``scale`` (experts in the range or 1, h) that
    their expert has. Nothing is promised of what is None: expert_tokens without their flag and, of rows that are not
    quantized, expanded_scale without ``scale``. ``x_dtype`` names the numbers that the bytes of x are; they are
    moved as they are. As op-plugin's own test of the operator computes it.

    Raises NotImplementedError for static quantization (``quant_mode`` 0), dynamic one with ``x_dtype``, ``offset``,
    ``drop_pad_mode`` 1, ``expert_tokens_num_type`` 2 and experts outside of the range, behind whose copies
    nothing is promised.
    """
    first, last = active_expert_range or (0, expert_num)
    refuse(
        "npu_moe_init_routing_v2",
        quant_mode_0=True if quant_mode == 0 else None,
        offset=offset,
        x_dtype=x_dtype if quant_mode == 1 else None,
        drop_pad_mode=drop_pad_mode or None,
        expert_tokens_num_type=expert_tokens_num_type if expert_tokens_num_type not in (0, 1) else None,
        experts_outside_of_active_expert_range=bool(((expert_idx < first) | (expert_idx >= last)).any()) or None,
    )
    order = expert_idx.flatten().argsort(stable=True)
    rows = order // expert_idx.shape[1]
    counts = torch.bincount(expert_idx.flatten() - first, minlength=last - first)
    tokens = counts.cumsum(0) if expert_tokens_num_type == 0 else counts
    places = (order if row_idx_type == 1 else order.argsort()).int()
    expanded, scales = x[rows], None if scale is None or quant_mode == 1 else scale[rows]
    if quant_mode == 1:
        wide = at_least_float32(expanded)
        if scale is not None:
            wide = wide * at_least_float32(scale)[_entry_of(scale, expert_idx.flatten()[order] - first)]
        expanded, scales = quantized_by_row(wide)
    return expanded, places, tokens if expert_tokens_num_flag else None, scales


def _entry_of(scale: Tensor, experts: Tensor) -> Tensor:
    """Return the row of ``scale`` of each expert; one row is for all of them."""
    return experts.long() if len(scale) > 1 else torch.zeros_like(experts).long()


@golden("NPU.npu_moe_token_permute_with_routing_map", OpInfo(constraint=routing.routing_map))
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
    tokens_out = count if num_out_tokens is None else num_out_tokens
    if drop_and_pad:
        rows = sent.byte().sort(dim=-1, descending=True, stable=True).indices[:, : tokens_out // experts]
        weights = None if probs is None else probs.T.gather(1, rows).flatten()
        return tokens[rows.flatten()], weights, rows.flatten().int()
    if bool((sent.sum(0) != tokens_out // count).any()):
        raise ValueError(f"routing_map sends tokens to other numbers of experts than {tokens_out // count}")
    senders = sent.nonzero()[:, 1]
    weights = None if probs is None else probs.T.masked_select(sent)
    return tokens[senders], weights, senders.argsort(stable=True).int()


@golden("NPU.npu_moe_token_unpermute_with_routing_map", OpInfo(constraint=routing.routed_back))
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
        permuted_tokens = permuted_tokens * weights_of_rows(places, probs, routing_map, drop_and_pad).unsqueeze(-1)
    if drop_and_pad:
        nothing = torch.zeros(*restore_shape, dtype=permuted_tokens.dtype, device=permuted_tokens.device)
        return nothing.index_add(0, places, permuted_tokens)
    return permuted_tokens[places].reshape(restore_shape[0], -1, permuted_tokens.shape[-1]).sum(1)


def weights_of_rows(places: Tensor, probs: Tensor, routing_map: Tensor | None, drop_and_pad: bool) -> Tensor:
    """Return the probability of each permuted token."""
    if drop_and_pad:
        return probs.T.gather(1, places.reshape(probs.shape[1], -1)).flatten()
    if routing_map is None:
        raise ValueError("npu_moe_token_unpermute_with_routing_map needs routing_map with probs")
    return probs.T.masked_select(routing_map.bool().T)


@golden("NPU._npu_moe_token_unpermute", OpInfo(constraint=routing.token_unpermute), recorded=False)
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


@golden("NPU._npu_moe_token_unpermute_with_routing_map", OpInfo(constraint=routing.routed_back), recorded=False)
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

"""Choice of experts, rows by expert, and experts that several ranks hold."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from msprobe_hooks.dump.effects import Effects, valid_rows_of
from pytest_msprobe.engine.replay.inputs.constraints.drawn import DrawnArguments
from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators.arguments import at_least_float32, refuse
from pytest_msprobe.extensions.npu_operators.inputs import moe_routing as routing

if TYPE_CHECKING:
    from collections.abc import Sequence


def group_sizes(
    api: str, groups: Tensor | Sequence[int], rows: int, *, cumulative: bool, may_leave_rows: bool = False
) -> list[int]:
    """Return how many rows each group has; ``groups`` are their ends where they are ``cumulative``.

    Raises ValueError where a size is negative or they do not add up to ``rows``. Of an API that leaves rows behind the
    last group undefined, or leaves them out (``may_leave_rows``), they may add up to fewer.
    """
    numbers = [int(number) for number in groups]
    sizes = [end - start for start, end in pairwise([0, *numbers])] if cumulative else numbers
    may_leave_rows = may_leave_rows or valid_rows_of(api) is not None
    is_shared_out = sum(sizes) == rows or (sum(sizes) < rows and may_leave_rows)
    if min(sizes, default=0) < 0 or not is_shared_out:
        raise ValueError(f"the groups of {api} have sizes {sizes}, which do not share out {rows} rows")
    return sizes


def each_row(api: str, of_groups: Tensor, groups: Tensor | Sequence[int], rows: int, *, cumulative: bool) -> Tensor:
    """Repeat what groups have, one entry each along dimension 0, for each of their rows."""
    sizes = group_sizes(api, groups, rows, cumulative=cumulative)
    return of_groups.repeat_interleave(torch.tensor(sizes, device=of_groups.device), 0)


def _moe_gating(drawn: DrawnArguments) -> None:
    """Map the flags of finished rows, recorded as whole numbers, to 0 and 1."""
    finished = drawn.tensor(1, "finished_optional", "finished")
    if finished is not None and finished.dtype is not torch.bool:
        finished.clamp_(0, 1)


@golden("NPU.npu_moe_gating_top_k_softmax", OpInfo(constraint=_moe_gating))
def npu_moe_gating_top_k_softmax(
    x: Tensor, finished: Tensor | None = None, k: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (y, expert_idx, row_idx), each (..., k), of gating logits ``x`` (..., experts), 2-D or 3-D.

    y are the k largest of softmax(x), expert_idx (int32) where they stand, the lower index first among
    equals; rows with ``finished`` true get the index ``experts``. row_idx (int32) is the position of each
    entry in column-major order of the (rows, k) matrix: row_idx[i, j] = j * rows + i.
    """
    experts = x.shape[-1]
    # rounded to half precision, unequal probabilities would become equal and change their order
    probabilities, order = torch.softmax(at_least_float32(x), -1).sort(stable=True, dim=-1, descending=True)
    expert_idx = order[..., :k]
    if finished is not None:
        expert_idx = expert_idx.masked_fill(finished.bool().unsqueeze(-1), experts)
    rows = x.shape[:-1].numel()
    row_idx = torch.arange(rows * k, dtype=torch.int32, device=x.device).reshape(k, rows).T
    return probabilities[..., :k].to(x.dtype), expert_idx.int(), row_idx.reshape(*x.shape[:-1], k)


@golden("NPU.npu_moe_gating_top_k_softmax_v2", OpInfo(constraint=_moe_gating))
def npu_moe_gating_top_k_softmax_v2(
    x: Tensor,
    *,
    k: int = 1,
    finished: Tensor | None = None,
    renorm: int | None = 0,
    output_softmax: bool | None = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (y, expert_idx, softmax) of gating logits ``x``: the first two as :func:`npu_moe_gating_top_k_softmax`.

    With ``renorm`` 1, y is the softmax of the k largest logits alone. The third is the softmax of x in float32 with
    ``output_softmax`` and ``renorm`` 0, and empty otherwise. Raises ValueError for another ``renorm``.
    """
    if renorm not in (None, 0, 1):
        raise ValueError(f"renorm {renorm} of npu_moe_gating_top_k_softmax_v2 is neither 0 nor 1")
    y, expert_idx, _ = npu_moe_gating_top_k_softmax(x, finished, k)
    probabilities = torch.softmax(at_least_float32(x), -1)
    if renorm == 1:
        best = at_least_float32(x).sort(stable=True, dim=-1, descending=True).values[..., :k]
        y = torch.softmax(best, -1).to(x.dtype)
    is_asked = bool(output_softmax) and renorm != 1
    return y, expert_idx, probabilities.detach() if is_asked else probabilities.new_empty(0)


@golden("NPU.npu_moe_gating_top_k", effects=Effects(defined=2))
def npu_moe_gating_top_k(
    x: Tensor, k: int,
    *, bias: Tensor | None = None, input_ids: Tensor | None = None, tid2eid: Tensor | None = None,
    k_group: int = 1, group_count: int = 1, group_select_mode: int = 0, renorm: int = 0, norm_type: int = 0,
    out_flag: bool = False, routed_scaling_factor: float = 1.0, eps: float = 1e-20,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return (y, expert_idx, norm) of gating logits ``x`` (rows, experts): (rows, k), (rows, k) in int32, as x.

    norm is softmax(x), with ``norm_type`` 1 sigmoid(x). Experts are selected by norm + bias: first the ``k_group`` best
    of ``group_count`` groups, by their greatest score or, with ``group_select_mode`` 1, the sum of their two greatest,
    then the k best experts of these, the lower index first among equals. y is norm there, for sigmoid over
    (sum + eps), times ``routed_scaling_factor``. Raises NotImplementedError for ``renorm`` and the hash mode
    (``input_ids``, ``tid2eid``). Of norm nothing is promised without ``out_flag``.
    """
    refuse("npu_moe_gating_top_k", renorm=renorm or None, input_ids=input_ids, tid2eid=tid2eid)
    logits = at_least_float32(x)
    norm = torch.sigmoid(logits) if norm_type == 1 else torch.softmax(logits, -1)
    scores = norm.detach() if bias is None else norm.detach() + bias
    if group_count > 1:
        groups = torch.unflatten(scores, -1, (group_count, -1))
        best = groups.topk(2 if group_select_mode == 1 else 1).values.sum(-1)
        best_groups = best.sort(stable=True, descending=True).indices[:, :k_group]
        left_out = torch.ones_like(best, dtype=torch.bool).scatter(1, best_groups, False)
        scores = groups.masked_fill(left_out.unsqueeze(-1), -torch.inf).flatten(1)
    expert_idx = scores.sort(stable=True, descending=True).indices[:, :k]
    y = norm.gather(1, expert_idx)
    if norm_type == 1:
        y = y / (y.sum(-1, keepdim=True) + eps)
    return (y * routed_scaling_factor).to(x.dtype), expert_idx.int(), norm.detach()


@golden("NPU.npu_moe_gating_top_k_backward", OpInfo(constraint=routing.gating), recorded=False)
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
    """Return the gradient of :func:`npu_moe_gating_top_k` for its logits, as ``x_norm`` (rows, experts).

    ``x_norm`` is the forward's norm, ``grad_y`` and ``expertIdx`` are (rows, k). Raises NotImplementedError for
    ``renorm``, which belongs to a mode that no device has yet.
    """
    refuse("npu_moe_gating_top_k_backward", renorm=renorm or None)
    norm, grad = at_least_float32(x_norm), at_least_float32(grad_y) * routed_scaling_factor
    experts = expertIdx.long()
    if norm_type == 1:
        picked = norm.gather(1, experts)
        total = picked.sum(-1, keepdim=True) + eps
        grad = grad / total - (grad * picked).sum(-1, keepdim=True) / total.square()
    of_norm = torch.zeros_like(norm).scatter_add(1, experts, grad.to(norm.dtype))
    if norm_type == 1:
        return (of_norm * norm * (1 - norm)).to(grad_y.dtype)
    return (norm * (of_norm - (of_norm * norm).sum(-1, keepdim=True))).to(grad_y.dtype)


@golden("NPU.npu_moe_update_expert", OpInfo(constraint=routing.copies_of_experts))
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
) -> tuple[Tensor, Tensor | None]:
    """Return (places of the tokens' experts, which of them are kept), both (tokens, k), of ``expert_ids`` likewise.

    Row e of ``eplb_table`` (experts, F) holds the number of copies of expert e, then where they are. With
    ``balance_mode`` 0 a card takes copy local_rank_id // ceil(world_size / copies), with 1 token t takes copy
    t % copies. An expert is kept where its scale is at least ``pruning_threshold`` (k) times the sum of the token's
    scales and ``active_mask`` (tokens) is true. Nothing is promised of what is kept, here None, without
    ``expert_scales``. As op-plugin's documentation and its example compute it.

    Raises ValueError for another ``balance_mode``, for mode 0 without rank and size, and for scales without threshold.
    """
    if balance_mode not in (0, 1):
        raise ValueError(f"balance_mode {balance_mode} of npu_moe_update_expert is neither 0 nor 1")
    if balance_mode == 0 and (local_rank_id < 0 or world_size < 1):
        raise ValueError("npu_moe_update_expert needs local_rank_id and world_size with balance_mode 0")
    experts = expert_ids.long()
    copies = eplb_table[:, 0].long()[experts]
    if balance_mode == 0:
        per_copy = -(-world_size // copies)
        copy_number = local_rank_id // per_copy
    else:
        tokens = torch.arange(len(experts), device=experts.device).unsqueeze(1)
        copy_number = tokens % copies
    places = eplb_table[experts, copy_number + 1].to(expert_ids.dtype)
    return places, _kept(expert_scales, pruning_threshold, active_mask)


def _kept(scales: Tensor | None, threshold: Tensor | None, active: Tensor | None) -> Tensor | None:
    if scales is None:
        return None
    if threshold is None:
        raise ValueError("expert_scales of npu_moe_update_expert need pruning_threshold")
    wide = at_least_float32(scales)
    is_kept = wide >= at_least_float32(threshold).reshape(1, -1) * wide.sum(-1, keepdim=True)
    return is_kept if active is None else is_kept & active.bool().unsqueeze(1)

"""Grouped products fused with what follows them, and the loss of a large vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from msprobe_hooks.dump.effects import Effects, ValidRows
from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators.arguments import at_least_float32, refuse
from pytest_msprobe.extensions.npu_operators.experts.moe import group_sizes
from pytest_msprobe.extensions.npu_operators.inputs import matmul_operands
from pytest_msprobe.extensions.npu_operators.matmul.operands import by_halves, numbers, scale_and_offset, scaled_product
from pytest_msprobe.extensions.npu_operators.matmul.quantized_matmul import quantized_rows
from pytest_msprobe.extensions.npu_operators.quantization.quantization import quantized_by_row
from pytest_msprobe.extensions.npu_operators.quantization.quantized_results import EIGHT_BITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


@golden("NPU.npu_grouped_matmul_finalize_routing", OpInfo(constraint=matmul_operands.finalize_routing))
def npu_grouped_matmul_finalize_routing(
    x: Tensor, w: Tensor, group_list: Tensor,
    *, scale: Tensor | None = None, bias: Tensor | None = None, offset: Tensor | None = None,
    pertoken_scale: Tensor | None = None, shared_input: Tensor | None = None, logit: Tensor | None = None,
    row_index: Tensor | None = None, dtype: torch.dtype | None = None, shared_input_weight: float | None = 1.0,
    shared_input_offset: int | None = 0, output_bs: int | None = 0, group_list_type: int | None = 1,
    tuning_config: Sequence[int] | None = None, x_dtype: int | None = None, w_dtype: int | None = None,
    scale_dtype: int | None = None, pertoken_scale_dtype: int | None = None,
) -> Tensor:  # fmt: skip
    """Return (output_bs, n): the sum of logit_t * (x_t @ w_i) * scale_i * pertoken_scale_t at row_index_t, and a share.

    w is (experts, k, n); ``group_list`` holds the sizes of the experts' groups of rows, with ``group_list_type`` 0
    their ends. ``shared_input`` * ``shared_input_weight`` is added from row ``shared_input_offset`` on. A weight of 4
    bits is multiplied by halves, with what ``bias`` adds for them (assumed to be as in
    aclnnGroupedMatmulSwigluQuantV2). ``tuning_config`` is about speed. Raises NotImplementedError for ``offset``.
    """
    api = "npu_grouped_matmul_finalize_routing"
    refuse(api, offset=offset)
    rows = numbers(api, x, x_dtype)
    weights = numbers(api, w, w_dtype, rows.shape[-1])
    sizes = _group_sizes(api, group_list, len(rows), group_list_type)
    factors = None if scale is None else scale_and_offset(numbers(api, scale, scale_dtype) if scale_dtype else scale)[0]
    tokens = None if pertoken_scale is None else numbers(api, pertoken_scale, pertoken_scale_dtype)[: sum(sizes)]
    shares = [None] * len(sizes) if tokens is None else torch.split(tokens, sizes)
    outs = []
    for group, part in enumerate(torch.split(rows[: sum(sizes)], sizes)):
        factor = None if factors is None else factors[group]
        added = None if bias is None else bias[group]
        if added is not None and factor is not None and weights is not w and part.dtype is torch.int8:
            outs.append(by_halves(part, weights[group], factor, shares[group], added))
        else:
            outs.append(scaled_product(part, weights[group], factor, shares[group], bias=added))
    routed = torch.cat(outs)
    if logit is not None:
        routed = routed * logit[: len(routed)].double().unsqueeze(-1)
    places = torch.arange(len(routed)) if row_index is None else row_index[: len(routed)].long()
    result = routed.new_zeros(output_bs or len(rows), routed.shape[-1]).index_add(0, places, routed)
    if shared_input is not None:
        share, first = shared_input.double() * (shared_input_weight or 0.0), shared_input_offset or 0
        result = result + F.pad(share, (0, 0, first, len(result) - first - len(share)))
    return result if pertoken_scale is None else result.to(torch.promote_types(pertoken_scale.dtype, torch.float32))


@golden(
    "NPU.npu_grouped_matmul_swiglu_quant",
    OpInfo(constraint=matmul_operands.groups_at(2), quantizes=EIGHT_BITS),
    Effects(defined=2, valid_rows=ValidRows("group_list", at=2)),
)
def npu_grouped_matmul_swiglu_quant(
    x: Tensor,
    weight: Tensor,
    group_list: Tensor,
    weight_scale: Tensor,
    x_scale: Tensor,
    *,
    bias: Tensor | None = None,
    offset: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return (int8, scale, None): silu(a) * b, quantized by row, for the halves a, b of the products of groups.

    Products are (x @ weight_i) * weight_scale_i * x_scale for x of int8 (m, k), weight (groups, k, n); ``group_list``
    holds the groups' ends. Rows behind them are zero here and not defined on the device, and nothing is promised of
    the third result. Raises NotImplementedError for ``bias``
    and ``offset``, which the device does not take either.
    """
    refuse("npu_grouped_matmul_swiglu_quant", bias=bias, offset=offset)
    y, scale = npu_grouped_matmul_swiglu_quant_v2(x, [weight], [weight_scale], x_scale, group_list)
    return y, scale, None


@golden(
    "NPU.npu_grouped_matmul_swiglu_quant_v2",
    OpInfo(constraint=matmul_operands.groups_at(4, "group_list_type"), quantizes=EIGHT_BITS),
    Effects(valid_rows=ValidRows("group_list", at=4, kind="group_list_type")),
)
def npu_grouped_matmul_swiglu_quant_v2(
    x: Tensor, weight: Sequence[Tensor], weight_scale: Sequence[Tensor], x_scale: Tensor, group_list: Tensor,
    *, smooth_scale: Tensor | None = None, weight_assist_matrix: Sequence[Tensor] | None = None,
    bias: Tensor | None = None, dequant_mode: int | None = 0, dequant_dtype: int | None = 6,
    quant_mode: int | None = 0, quant_dtype: int | None = 1, group_list_type: int | None = 0,
    tuning_config: Sequence[int] | None = None, x_dtype: int | None = None, weight_dtype: int | None = None,
    weight_scale_dtype: int | None = None, x_scale_dtype: int | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return (int8, scale): silu(a) * b * smooth_scale_i, quantized by row, for halves a, b of the products of groups.

    Products are (x @ weight_i) * weight_scale_i * x_scale, operands of int8 or 4 bits, ``weight_scale`` by column or
    by column and group of rows; a weight of 4 bits with x of int8 is multiplied by halves, with what
    ``weight_assist_matrix`` adds for them. ``group_list`` holds the groups' ends, with ``group_list_type`` 1 their
    sizes; rows behind them are zero here and not defined on the device. ``tuning_config`` is about speed.
    Raises NotImplementedError for ``bias``, a result of another dtype than int8, and MX quantization.
    """
    api = "npu_grouped_matmul_swiglu_quant_v2"
    refuse(
        api,
        bias=bias,
        quant_mode=quant_mode or None,
        quant_dtype=quant_dtype if quant_dtype not in (None, 0, 1) else None,
        dequant_dtype=dequant_dtype if dequant_dtype not in (None, 6) else None,
        scale_of_8_bits=weight_scale_dtype or x_scale_dtype,
    )
    rows = numbers(api, x, x_dtype)
    weights = [matrix for tensor in weight for matrix in _matrices(numbers(api, tensor, weight_dtype, rows.shape[-1]))]
    factors = _of_groups(weight_scale, len(weights))
    assists = [None] * len(weights) if not weight_assist_matrix else _of_groups(weight_assist_matrix, len(weights))
    sizes = _group_sizes(api, group_list, len(rows), group_list_type)
    shares = torch.split(x_scale.double()[: sum(sizes)], sizes)
    outs = []
    for group, part in enumerate(torch.split(rows[: sum(sizes)], sizes)):
        scale, _ = scale_and_offset(factors[group])
        assist = assists[group]
        if assist is None:
            product = scaled_product(part, weights[group], scale, shares[group].reshape(-1, 1))
        else:
            product = by_halves(part, weights[group], scale, shares[group], assist)
        left, right = product.chunk(2, -1)
        out = F.silu(left) * right
        outs.append(out if smooth_scale is None else out * smooth_scale[group].double())
    rows_out = torch.cat(outs)
    y, scale = quantized_by_row(F.pad(rows_out, (0, 0, 0, len(rows) - len(rows_out))))
    return y, scale.to(torch.promote_types(x_scale.dtype, torch.float32))


def _matrices(weight: Tensor) -> list[Tensor]:
    return list(weight) if weight.dim() == 3 else [weight]


def _of_groups(tensors: Sequence[Tensor], groups: int) -> list[Tensor]:
    return list(tensors[0]) if len(tensors) == 1 and groups == len(tensors[0]) else list(tensors)


@golden(
    "NPU.npu_quant_grouped_matmul_dequant",
    OpInfo(constraint=matmul_operands.groups_at(3)),
    Effects(valid_rows=ValidRows("group_list", at=3)),
)
def npu_quant_grouped_matmul_dequant(
    x: Tensor, quantized_weight: Tensor, weight_scale: Tensor, group_list: Tensor,
    *, bias: Tensor | None = None, x_scale: Tensor | None = None, x_offset: Tensor | None = None,
    smooth_scale: Tensor | None = None, quant_mode: str | None = "pertoken",
) -> Tensor:  # fmt: skip
    """Return (q @ weight_i^T + bias_i) * weight_scale_i * s by groups of rows, with q and s of the rows of x.

    q = round(x * smooth_scale / s) in int8; s is ``x_scale``, of each row or of all, by default the largest number of
    each row / 127. weight is (groups, n, k), ``group_list`` holds the groups' ends. A packed ``weight_scale`` holds s
    already. Raises NotImplementedError for ``x_offset``. Source: aclnnQuantGroupedMatmulDequant's documentation.
    """
    api = "npu_quant_grouped_matmul_dequant"
    refuse(api, x_offset=x_offset)
    rows, scale = quantized_rows(x, smooth_scale, x_scale)
    factors, _ = scale_and_offset(weight_scale)
    tokens = scale.expand(len(rows)) if scale.numel() == 1 else scale
    sizes = _group_sizes(api, group_list, len(rows), 0)
    outs = []
    for group, (part, share) in enumerate(
        zip(torch.split(rows[: sum(sizes)], sizes), torch.split(tokens[: sum(sizes)], sizes), strict=True)
    ):
        token = share.reshape(-1, 1) if weight_scale.is_floating_point() else None
        added = None if bias is None else bias[group]
        outs.append(scaled_product(part, quantized_weight[group].mT, factors[group], token, bias=added))
    rows_out = torch.cat(outs)
    return F.pad(rows_out, (0, 0, 0, len(rows) - len(rows_out))).to(x.dtype)


def _group_sizes(api: str, group_list: Tensor, total: int, kind: int | None) -> list[int]:
    return group_sizes(api, group_list, total, cumulative=kind != 1, may_leave_rows=True)


_BITS = 8


@golden("NPU.npu_fused_linear_online_max_sum")
def npu_fused_linear_online_max_sum(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    vocab_start_index: int,
    vocab_end_index: int,
    return_logits: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return (max, sum, predicted, mask, local target, logits) of logits = input @ weight^T, input (tokens, k).

    max is each row's, sum that of exp(logits - max), predicted logits - max at the target, 0 where the target is
    outside of [vocab_start_index, vocab_end_index]. mask says so in a bit for each token, the first token in the
    highest bit (assumed) and bits behind the last token set; the local target is counted from the start, 0 where
    masked. logits are empty without ``return_logits``. Source: op-plugin's documentation.
    """
    logits = at_least_float32(input) @ at_least_float32(weight).mT
    highest = logits.detach().amax(-1)
    shifted = logits - highest.unsqueeze(-1)
    is_outside = (target < vocab_start_index) | (target > vocab_end_index)
    local = (target - vocab_start_index).masked_fill(is_outside, 0)
    predicted = shifted.gather(-1, local.long().unsqueeze(-1)).squeeze(-1).masked_fill(is_outside, 0.0)
    return (
        highest,
        shifted.exp().sum(-1),
        predicted,
        _packed(is_outside),
        local,
        logits.to(input.dtype) if return_logits else input.new_empty(0),
    )


def _packed(flags: Tensor) -> Tensor:
    """Return flags as bits of uint8, the first in the highest, bits without a flag set."""
    padded = torch.cat([flags.long(), flags.new_ones(-len(flags) % _BITS, dtype=torch.long)])
    weights = 1 << torch.arange(_BITS - 1, -1, -1)
    return (padded.reshape(-1, _BITS) * weights).sum(-1).to(torch.uint8)


def _unpacked(bits: Tensor, count: int) -> Tensor:
    """Return the flags that :func:`_packed` packs, as 0 and 1."""
    shifts = torch.arange(_BITS - 1, -1, -1)
    return ((bits.long().unsqueeze(-1) >> shifts) & 1).flatten()[:count]


@golden("NPU.npu_fused_cross_entropy_loss_with_max_sum")
def npu_fused_cross_entropy_loss_with_max_sum(
    logits_max: Tensor,
    sum_exp_logits: Tensor,
    predicted_logits: Tensor,
    *,
    label_smoothing: float | None = 0.0,
    input: Tensor | None = None,
    weight: Tensor | None = None,
    vocab_parallel_logits: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return (log(sum_exp_logits) - predicted_logits, exp(vocab_parallel_logits - logits_max) / sum_exp_logits).

    All of (tokens,), of all ranks together, but for the logits (tokens, vocabulary), without which the second result
    is None. Raises NotImplementedError for ``label_smoothing``, ``input`` and ``weight``, which the device does not
    take either.
    """
    refuse(
        "npu_fused_cross_entropy_loss_with_max_sum",
        label_smoothing=label_smoothing or None,
        input=input,
        weight=weight,
    )
    loss = sum_exp_logits.log() - predicted_logits
    if vocab_parallel_logits is None:
        return loss, None
    return loss, _softmax(vocab_parallel_logits, logits_max, sum_exp_logits)


def _softmax(logits: Tensor, highest: Tensor, total: Tensor) -> Tensor:
    wide = logits.to(highest.dtype)
    return (wide - highest.unsqueeze(-1)).exp() / total.unsqueeze(-1)


@golden(
    "NPU.npu_fused_linear_cross_entropy_loss_with_max_sum_backward",
    OpInfo(constraint=matmul_operands.vocabulary_targets),
    recorded=False,
)
def npu_fused_linear_cross_entropy_loss_with_max_sum_backward(
    grad: Tensor, input: Tensor, weight: Tensor, target_mask: Tensor, masked_target: Tensor,
    label_smoothing: float = 0.0, logits_max: Tensor | None = None, sum_exp_logits: Tensor | None = None,
    softmax: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the gradients of the loss for input (tokens, k) and weight (vocabulary, k).

    They are d @ weight and d^T @ input with d = (softmax - one at the target, where it is not masked) * grad.
    ``softmax`` is made of ``logits_max`` and ``sum_exp_logits``, of all ranks, where it is not given: ValueError where
    these are missing too. Raises NotImplementedError for ``label_smoothing``.
    """
    api = "npu_fused_linear_cross_entropy_loss_with_max_sum_backward"
    refuse(api, label_smoothing=label_smoothing or None)
    if softmax is None:
        if logits_max is None or sum_exp_logits is None:
            raise ValueError(f"{api} needs softmax, or logits_max and sum_exp_logits")
        softmax = _softmax(input @ weight.mT, logits_max, sum_exp_logits)
    is_inside = 1 - _unpacked(target_mask, len(grad))
    one_hot = torch.zeros_like(softmax).scatter(
        -1, masked_target.long().unsqueeze(-1), is_inside.to(softmax.dtype).unsqueeze(-1)
    )
    of_logits = ((softmax - one_hot) * grad.unsqueeze(-1)).to(input.dtype)
    return of_logits @ weight, of_logits.mT @ input

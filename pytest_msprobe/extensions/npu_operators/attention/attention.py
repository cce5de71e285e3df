"""Fused attention, forward and gradient."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from msprobe_hooks.dump.effects import Effects
from pytest_msprobe.engine.replay.inputs.constraints import values
from pytest_msprobe.engine.replay.ops.operators import Kernel, golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.engine.replay.random_apis import attention_dropout, probability_switch
from pytest_msprobe.engine.replay.random_apis.random_property import REQUIRED, Form, Parameters, RandomProperty, bound
from pytest_msprobe.engine.replay.random_apis.unverifiable import average_of
from pytest_msprobe.extensions.npu_operators.arguments import refuse
from pytest_msprobe.extensions.npu_operators.attention.attention_core import (
    BATCHED_LAYOUTS,
    AttentionMask,
    head_count,
    heads_first,
    in_layout,
)
from pytest_msprobe.extensions.npu_operators.attention.attention_core import attend as attend_by_definition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from pytest_msprobe.extensions.npu_operators.attention.attention_core import Attend
    from pytest_msprobe.extensions.npu_operators.sparse_attention.token_layouts import Lengths

_PARAMETERS: Parameters = (
    ("query", REQUIRED), ("key", REQUIRED), ("value", REQUIRED), ("head_num", REQUIRED),
    ("input_layout", REQUIRED), ("pse", None), ("padding_mask", None), ("atten_mask", None), ("scale", 1.0),
    ("keep_prob", 1.0),
)  # fmt: skip


def _fused_attention(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return the property of ``npu_fusion_attention`` with ``keep_prob`` below 1."""
    given = bound(api, _PARAMETERS, args, kwargs)
    keep = float(given["keep_prob"])
    return None if keep == 1 else average_of(given["value"], keep, Form())


FUSED_ATTENTION = OpInfo(
    constraint=values.packed_attention(),
    random=_fused_attention,
    switch=probability_switch.probability("keep_prob", 9, 1.0),
    readable=attention_dropout.readable_by_layout,
)

# CANN's default, the greatest int32: every earlier or later token is attended to.
_UNLIMITED = 2147483647
# the device repeats each row's maximum and sum to fill a 32-byte block of float32
_STATISTIC_COPIES = 8


def kernel_on_gpu(definition: Callable[..., Any]) -> Kernel:
    """Return what computes fused attention by the kernels that a GPU has, whose module only its runs load."""
    from pytest_msprobe.extensions.npu_operators.attention.gpu_kernels import FusedAttention

    return FusedAttention(definition)


@golden("NPU.npu_fusion_attention", FUSED_ATTENTION, Effects(defined=3), on_gpu=kernel_on_gpu)
def npu_fusion_attention(
    query: Tensor, key: Tensor, value: Tensor, head_num: int, input_layout: str, pse: Tensor | None = None,
    padding_mask: Tensor | None = None, atten_mask: Tensor | None = None, scale: float = 1.0,
    keep_prob: float = 1.0, pre_tockens: int = _UNLIMITED, next_tockens: int = _UNLIMITED,
    inner_precise: int = 0, prefix: Sequence[int] | None = None, actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None, sparse_mode: int = 0, gen_mask_parallel: bool = True,
    sync: bool = False, softmax_layout: str = "", sink: Tensor | None = None,
    dropout_mask: Tensor | None = None, seed: int = 0, offset: int = 0,
    *, attend: Attend = attend_by_definition,
) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int, int]:  # fmt: skip
    """Return attention: dropout(softmax(mask(scale * (q k^T + pse)))) v, grouped heads where N_q > N_kv.

    ``input_layout`` is BSH, SBH, BSND, BNSD or TND; for TND, T holds all sequences one after the other and
    ``actual_seq_qlen`` and ``actual_seq_kvlen`` are their *cumulative* lengths (trailing zeros: sequences
    that take no part, whose rows are 0). ``sink`` (N) is for each head the score of one more key, whose value
    is 0 (CANN's ``aclnnFlashAttentionVarLenScoreV5``). ``atten_mask`` is true where a key is hidden, of shape
    (B, N, Sq, Skv), (B, 1, Sq, Skv), (1, 1, Sq, Skv) or (Sq, Skv). Without it everything is visible and
    ``sparse_mode`` counts for nothing, as torch_npu documents. With it:

    ====  ==========================================================================================
    mode  hidden
    ====  ==========================================================================================
    0     the mask, and what is outside of the band [-pre_tockens, next_tockens] from the top left
    1, 5  the mask
    2     above the diagonal from the top left
    3     above the diagonal that ends at the bottom right
    4     outside of the band [-pre_tockens, next_tockens] from the bottom right
    6     as 3, but the first ``prefix[b]`` keys stay visible
    7     (TND) the last sequence as 4, the others as 3
    8     (TND) the first sequence as 4, the others as 2
    ====  ==========================================================================================

    In modes 2 to 4 and 6 to 8 the device gets a compressed triangle; a mask of the scores' own shape
    (Sq, Skv) is taken as it is instead. A row with everything hidden gives 0 and has no gradient.

    Returns (attention_out in ``input_layout``; softmax_max and softmax_sum, the maximum of each row's scores
    and the sum of exp(score - maximum), eight times each: (B, N, Sq, 8), for TND (T, N, 8), which holds for
    each sequence one head after the other unless ``softmax_layout`` is TND; -inf and 0 for a row with
    everything hidden; an empty tensor; seed 0, offset 0 and the number of scores). With ``keep_prob``
    below 1 weights are dropped at random and the rest divided by it: the law is the device's, the draw is not, and
    so the ``seed`` and ``offset`` of its generator count for nothing.

    ``attend``, no argument of torch_npu's, computes the attention of each batch: the definition, or a kernel.

    Raises ValueError for another layout or mode and for one that lacks its lengths or prefix, and
    NotImplementedError for ``padding_mask``, ``dropout_mask``, another ``softmax_layout``, ``pse`` with TND or
    compressed to 1024 rows, which have no golden definition.
    """
    other_layout = None if softmax_layout in ("", "TND") else softmax_layout
    refuse("npu_fusion_attention", padding_mask=padding_mask, dropout_mask=dropout_mask, softmax_layout=other_layout)
    layout = input_layout.upper()
    hidden = AttentionMask(atten_mask, sparse_mode, pre_tockens, next_tockens, prefix, layout == "TND")
    if layout == "TND":
        refuse("npu_fusion_attention with input_layout TND", pse=pse)
        q_lengths, kv_lengths = _lengths(actual_seq_qlen), _lengths(actual_seq_kvlen)
        out, maximum, total, count = _packed(
            query, key, value, q_lengths, kv_lengths, hidden, scale, keep_prob, sink, attend
        )
        if softmax_layout != "TND":
            maximum, total = (_head_by_head(statistic, q_lengths) for statistic in (maximum, total))
    elif layout in BATCHED_LAYOUTS:
        q = heads_first(query, layout, head_num)
        # as many dimensions per head in key as in query; value may have fewer, but has key's heads
        kv_heads = head_count(key, layout, q.shape[-1])
        k, v = heads_first(key, layout, kv_heads), heads_first(value, layout, kv_heads)
        if pse is not None and pse.dim() == 4 and pse.shape[2] not in (1, q.shape[2]):
            raise NotImplementedError(
                f"pse of npu_fusion_attention has {pse.shape[2]} rows for {q.shape[2]} queries; "
                "the compressed form has no golden definition; pass every row"
            )
        mask = hidden.of_batch(q.shape[0], q.shape[2], k.shape[2])
        heads, maximum, total = attend(q, k, v, pse, mask, scale, keep_prob, sink)
        out = in_layout(heads, layout)
        count = q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]
    else:
        layouts = ", ".join((*BATCHED_LAYOUTS, "TND"))
        raise ValueError(f"input_layout {input_layout!r} of npu_fusion_attention is not one of {layouts}")
    statistics = [row.unsqueeze(-1).expand(*row.shape, _STATISTIC_COPIES) for row in (maximum, total)]
    return out, statistics[0], statistics[1], query.new_empty(0), 0, 0, count


@golden("Aten.npu_fusion_attention_grad", OpInfo(constraint=values.packed_attention()))
def npu_fusion_attention_grad(
    query: Tensor, key: Tensor, value: Tensor, dy: Tensor, head_num: int, input_layout: str,
    *, pse: Tensor | None = None, padding_mask: Tensor | None = None, atten_mask: Tensor | None = None,
    softmax_max: Tensor | None = None, softmax_sum: Tensor | None = None, softmax_in: Tensor | None = None,
    attention_in: Tensor | None = None, scale_value: float = 1.0, keep_prob: float = 1.0,
    pre_tockens: int = _UNLIMITED, next_tockens: int = _UNLIMITED, inner_precise: int = 0, seed: int = 0,
    offset: int = 0, numels: int = 0, prefix: Sequence[int] | None = None,
    actual_seq_qlen: Sequence[int] | None = None, actual_seq_kvlen: Sequence[int] | None = None,
    sparse_mode: int = 0, gen_mask_parallel: bool = True, sync: bool = False, softmax_layout: str = "",
    sink: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """Return the gradients of :func:`npu_fusion_attention` for query, key, value, pse and sink; None for one not given.

    Versions of torch_npu without ``sink`` return the first four.

    The forward's saved statistics and output are not read: everything follows from the inputs. Raises
    what the forward does, and NotImplementedError for ``keep_prob`` below 1, whose mask only the device can rebuild.
    """
    refuse("npu_fusion_attention_grad", keep_prob=keep_prob if keep_prob < 1 else None)
    with torch.enable_grad():
        q, k, v = (tensor.detach().requires_grad_() for tensor in (query, key, value))
        bias, extra = (None if operand is None else operand.detach().requires_grad_() for operand in (pse, sink))
        out = npu_fusion_attention(
            q,
            k,
            v,
            head_num,
            input_layout,
            pse=bias,
            padding_mask=padding_mask,
            atten_mask=atten_mask,
            scale=scale_value,
            pre_tockens=pre_tockens,
            next_tockens=next_tockens,
            prefix=prefix,
            actual_seq_qlen=actual_seq_qlen,
            actual_seq_kvlen=actual_seq_kvlen,
            sparse_mode=sparse_mode,
            sink=extra,
        )[0]
        operands = [operand for operand in (q, k, v, bias, extra) if operand is not None]
        gradients = iter(torch.autograd.grad(out, operands, dy))
    grad_q, grad_k, grad_v = next(gradients), next(gradients), next(gradients)
    grad_bias = None if bias is None else next(gradients)
    return grad_q, grad_k, grad_v, grad_bias, None if extra is None else next(gradients)


def _packed(
    query: Tensor, key: Tensor, value: Tensor, q_lengths: list[int], kv_lengths: list[int],
    hidden: AttentionMask, scale: float, keep_prob: float, sink: Tensor | None, attend: Attend,
) -> tuple[Tensor, Tensor, Tensor, int]:  # fmt: skip
    """Return attention of (T, N, D) tensors, sequence by sequence; the statistics are (T, N)."""
    if len(q_lengths) != len(kv_lengths):
        raise ValueError(
            "actual_seq_qlen and actual_seq_kvlen of npu_fusion_attention differ in length: "
            f"{len(q_lengths)} and {len(kv_lengths)}"
        )
    last = max((i for i, lengths in enumerate(zip(q_lengths, kv_lengths, strict=True)) if all(lengths)), default=0)
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    q_start = kv_start = count = 0
    for index, (rows, columns) in enumerate(zip(q_lengths, kv_lengths, strict=True)):
        q = query[q_start : q_start + rows].transpose(0, 1).unsqueeze(0)
        k = key[kv_start : kv_start + columns].transpose(0, 1).unsqueeze(0)
        v = value[kv_start : kv_start + columns].transpose(0, 1).unsqueeze(0)
        mask = hidden.of_sequence(index, last, rows, columns)
        out, maximum, total = attend(q, k, v, None, mask, scale, keep_prob, sink)
        parts.append((out[0].transpose(0, 1), maximum[0].T, total[0].T))
        q_start, kv_start = q_start + rows, kv_start + columns
        count += query.shape[1] * rows * columns
    rest = query.shape[0] - q_start
    nothing = query.new_zeros(rest, query.shape[1])
    parts.append((query.new_zeros(rest, query.shape[1], value.shape[2]), nothing - torch.inf, nothing))
    outs, maxima, totals = zip(*parts, strict=True)
    return torch.cat(outs), torch.cat(maxima), torch.cat(totals), count


def _head_by_head(statistic: Tensor, lengths: list[int]) -> Tensor:
    """Order (T, N) numbers as the device does by default: of each sequence head by head, in the same shape."""
    sequences = torch.split(statistic, [*lengths, len(statistic) - sum(lengths)])
    return torch.cat([sequence.T.flatten() for sequence in sequences]).reshape(statistic.shape)


def _lengths(cumulative: Sequence[int] | None) -> list[int]:
    """Return the single lengths of cumulative ones; zeros at the end are sequences that take no part."""
    if not cumulative:
        raise ValueError("input_layout TND of npu_fusion_attention needs actual_seq_qlen and actual_seq_kvlen")
    ends = [0, *(int(end) for end in cumulative)]
    return [max(0, end - start) for start, end in pairwise(ends)]


# CANN's default, the greatest int32: every earlier or later token is attended to.


@golden("Aten.npu_fusion_attention_grad_v2", OpInfo(constraint=values.packed_attention()))
def npu_fusion_attention_grad_v2(
    query: Tensor, key: Tensor, value: Tensor, dy: Tensor, head_num: int, input_layout: str,
    *, pse: Tensor | None = None, padding_mask: Tensor | None = None, atten_mask: Tensor | None = None,
    softmax_max: Tensor | None = None, softmax_sum: Tensor | None = None, softmax_in: Tensor | None = None,
    attention_in: Tensor | None = None, query_rope: Tensor | None = None, key_rope: Tensor | None = None,
    scale_value: float = 1.0, keep_prob: float = 1.0, pre_tokens: int = _UNLIMITED,
    next_tokens: int = _UNLIMITED, inner_precise: int = 0, seed: int = 0, offset: int = 0, numels: int = 0,
    prefix: Sequence[int] | None = None, actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None, sparse_mode: int = 0, gen_mask_parallel: bool = True,
    sync: bool = False, pse_type: int = 1, q_start_idx: Sequence[int] | None = None,
    kv_start_idx: Sequence[int] | None = None, softmax_layout: str = "", sink: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """Return the gradients of npu_fusion_attention_v2: query, key, value, pse, both ropes and sink.

    Those of what was not given are None. Ropes (TND) are further dimensions of queries and keys; ``pse_type`` 0 adds
    pse to the scaled product. The forward's saved statistics and output are not read: everything follows from the
    inputs. Raises what the forward does, and NotImplementedError for ``keep_prob`` below 1, whose mask only the device
    can rebuild, for ropes in another layout and for the types that make pse themselves (2 and 3).
    """
    api = "npu_fusion_attention_grad_v2"
    roped = query_rope is not None and key_rope is not None
    refuse(
        api,
        keep_prob=keep_prob if keep_prob < 1 else None,
        query_rope=query_rope if roped and input_layout.upper() != "TND" else None,
        pse_type=None if pse_type in (0, 1) else pse_type,
        q_start_idx=q_start_idx or None,
        kv_start_idx=kv_start_idx or None,
    )
    operands = (query, key, value, pse, query_rope if roped else None, key_rope if roped else None, sink)

    def attention(leaves: list[Tensor | None]) -> Tensor:
        q, k, v, bias, q_rope, k_rope, more = leaves
        assert q is not None
        assert k is not None
        assert v is not None
        if q_rope is not None and k_rope is not None:
            q, k = torch.cat([q, q_rope], -1), torch.cat([k, k_rope], -1)
        return npu_fusion_attention(
            q,
            k,
            v,
            head_num,
            input_layout,
            pse=bias / scale_value if bias is not None and pse_type == 0 else bias,
            padding_mask=padding_mask,
            atten_mask=atten_mask,
            scale=scale_value,
            pre_tockens=pre_tokens,
            next_tockens=next_tokens,
            prefix=prefix,
            actual_seq_qlen=actual_seq_qlen,
            actual_seq_kvlen=actual_seq_kvlen,
            sparse_mode=sparse_mode,
            sink=more,
        )[0]

    of_query, of_key, of_value, of_pse, of_q_rope, of_k_rope, of_sink = _gradients(attention, operands, dy)
    assert of_query is not None
    assert of_key is not None
    assert of_value is not None
    return of_query, of_key, of_value, of_pse, of_q_rope, of_k_rope, of_sink


@golden("Aten.npu_fusion_attention_grad_v3", OpInfo(constraint=values.packed_attention()))
def npu_fusion_attention_grad_v3(
    query: Tensor, key: Tensor, value: Tensor, dy: Tensor, head_num: int, input_layout: str,
    *, pse: Tensor | None = None, padding_mask: Tensor | None = None, atten_mask: Tensor | None = None,
    softmax_max: Tensor | None = None, softmax_sum: Tensor | None = None, softmax_in: Tensor | None = None,
    attention_in: Tensor | None = None, scale_value: float = 1.0, keep_prob: float = 1.0,
    pre_tockens: int = _UNLIMITED, next_tockens: int = _UNLIMITED, inner_precise: int = 0,
    seed: Tensor | None = None, offset: Tensor | None = None, prefix: Sequence[int] | None = None,
    actual_seq_qlen: Lengths = None, actual_seq_kvlen: Lengths = None, sparse_mode: int = 0,
    gen_mask_parallel: bool = True, sync: bool = False, softmax_layout: str = "", sink: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """Return the gradients of npu_fusion_attention_v3 for query, key, value, pse and sink, as version 2 does."""
    lengths = [None if ends is None else [int(end) for end in ends] for ends in (actual_seq_qlen, actual_seq_kvlen)]
    of_query, of_key, of_value, of_pse, _, _, of_sink = npu_fusion_attention_grad_v2(
        query,
        key,
        value,
        dy,
        head_num,
        input_layout,
        pse=pse,
        padding_mask=padding_mask,
        atten_mask=atten_mask,
        scale_value=scale_value,
        keep_prob=keep_prob,
        pre_tokens=pre_tockens,
        next_tokens=next_tockens,
        prefix=prefix,
        actual_seq_qlen=lengths[0],
        actual_seq_kvlen=lengths[1],
        sparse_mode=sparse_mode,
        sink=sink,
    )
    return of_query, of_key, of_value, of_pse, of_sink


def _gradients(
    function: Callable[[list[Tensor | None]], Tensor], operands: Sequence[Tensor | None], arriving: Tensor
) -> list[Tensor | None]:
    """Return the gradients of a function for each of the tensors given, None for None."""
    with torch.enable_grad():
        leaves = [None if operand is None else operand.detach().requires_grad_() for operand in operands]
        differentiated = [operand for operand in leaves if operand is not None]
        gradients = iter(torch.autograd.grad(function(leaves), differentiated, arriving))
    return [None if operand is None else next(gradients) for operand in leaves]

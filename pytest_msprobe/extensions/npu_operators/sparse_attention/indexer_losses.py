"""The loss that trains a lightning indexer, its distance from the attention itself, and the gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators.arguments import at_least_float32, refuse
from pytest_msprobe.extensions.npu_operators.inputs import selected_keys
from pytest_msprobe.extensions.npu_operators.sparse_attention.lightning_indexer import index_scores
from pytest_msprobe.extensions.npu_operators.sparse_attention.token_layouts import (
    UNLIMITED,
    Lengths,
    joined,
    row_count,
    sequences,
    visible_counts,
    visible_keys,
)

if TYPE_CHECKING:
    from torch import Tensor

# Probabilities below are taken for this much where the logarithm is taken.
_LEAST_PROBABILITY = 1e-8


@golden("NPU.npu_dense_lightning_indexer_softmax_lse")
def npu_dense_lightning_indexer_softmax_lse(
    query_index: Tensor, key_index: Tensor, weights: Tensor,
    *, actual_seq_qlen: Lengths = None, actual_seq_klen: Lengths = None, layout: str | None = "BSND",
    sparse_mode: int | None = 3, pre_tokens: int | None = UNLIMITED, next_tokens: int | None = UNLIMITED,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return of an indexer's scores each query's maximum and the sum of exp(score - maximum).

    They are (B, N2, S1) or, for TND, (N2, T1). The scores are those of ``npu_lightning_indexer``, of the keys that
    ``sparse_mode`` lets a query see; where there are none, -inf and 0 (assumed).
    """
    api, layout = "npu_dense_lightning_indexer_softmax_lse", layout or "BSND"
    by_query = [sequences(api, operand, layout, actual_seq_qlen) for operand in (query_index, weights)]
    maxima, totals = [], []
    for queries, factors, keys in zip(*by_query, sequences(api, key_index, layout, actual_seq_klen), strict=True):
        window = {"pre_tokens": pre_tokens, "next_tokens": next_tokens}
        counts = visible_counts(api, sparse_mode, len(queries), len(keys), **window)
        scores = index_scores(queries, factors, keys)
        scores = scores.masked_fill(~visible_keys(counts, len(keys)).unsqueeze(1), -torch.inf)
        maximum = scores.amax(-1)
        maxima.append(maximum)
        totals.append(torch.exp(scores - maximum.masked_fill(maximum == -torch.inf, 0.0).unsqueeze(-1)).sum(-1))
    rows = row_count(query_index, layout)
    # (B, S1, N2) or (T1, N2)
    maximum, total = (joined(operand, rows, layout).transpose(-1, -2).contiguous() for operand in (maxima, totals))
    return at_least_float32(maximum.detach()), at_least_float32(total.detach())


@golden("NPU.npu_dense_lightning_indexer_grad_kl_loss")
def npu_dense_lightning_indexer_grad_kl_loss(
    query: Tensor, key: Tensor, query_index: Tensor, key_index: Tensor, weights: Tensor, softmax_max: Tensor,
    softmax_sum: Tensor, softmax_max_index: Tensor, softmax_sum_index: Tensor, scale_value: float,
    *, query_rope: Tensor | None = None, key_rope: Tensor | None = None, actual_seq_qlen: Lengths = None,
    actual_seq_klen: Lengths = None, layout: str | None = "BSND", sparse_mode: int | None = 3,
    pre_tokens: int | None = UNLIMITED, next_tokens: int | None = UNLIMITED,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients for query_index, key_index and weights, and the loss (1): KL(p || q), summed over queries.

    p is the mean over heads of the attention's weights, exp(scale * q k - ``softmax_max``) / ``softmax_sum``, of
    statistics (B, N2, S1, N1 / N2) or (N2, T1, N1 / N2); q is exp(I - ``softmax_max_index``) / ``softmax_sum_index``,
    of I, the scores of the indexer. Ropes are further dimensions of query and key. dKL / dI is q - p; logarithms are of
    1e-8 at least, as in op-plugin's own test. Formulas: op-plugin's documentation.
    """
    api, layout = "npu_dense_lightning_indexer_grad_kl_loss", layout or "BSND"
    attention = _Attention(query, key, query_rope, key_rope, softmax_max, softmax_sum, scale_value)
    by_query = _by_sequence(api, attention, (query_index, weights), layout, actual_seq_qlen)
    of_index = [_of_index(api, operand, layout, actual_seq_qlen) for operand in (softmax_max_index, softmax_sum_index)]
    keys = [sequences(api, operand, layout, actual_seq_klen) for operand in (attention.keys(), key_index)]
    results = []
    for (q, maximum, total, q_index, factors), highest, summed, k, k_index in zip(
        by_query, *of_index, *keys, strict=True
    ):
        window = {"pre_tokens": pre_tokens, "next_tokens": next_tokens}
        shown = visible_keys(visible_counts(api, sparse_mode, len(q), len(k), **window), len(k)).unsqueeze(1)
        p = _attention_weights(q, k, maximum, total, scale_value, shown)
        scores = index_scores(q_index, factors, k_index)
        estimate = torch.exp((scores - highest.unsqueeze(-1)).masked_fill(~shown, -torch.inf)) / summed.unsqueeze(-1)
        results.append(_gradients(q_index, factors, k_index, p, estimate))
    return _gathered(results, (query_index, key_index, weights), layout)


@golden("NPU.npu_sparse_lightning_indexer_grad_kl_loss", OpInfo(constraint=selected_keys.indexer_loss))
def npu_sparse_lightning_indexer_grad_kl_loss(
    query: Tensor, key: Tensor, query_index: Tensor, key_index: Tensor, weights: Tensor, sparse_indices: Tensor,
    softmax_max: Tensor, softmax_sum: Tensor, scale_value: float,
    *, query_rope: Tensor | None = None, key_rope: Tensor | None = None, actual_seq_qlen: Lengths = None,
    actual_seq_klen: Lengths = None, layout: str | None = "BSND", sparse_mode: int | None = 3,
    pre_tokens: int | None = UNLIMITED, next_tokens: int | None = UNLIMITED, sinks: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return what the dense operator does, where both distributions are over the keys that ``sparse_indices`` select.

    The indices are (..., N2, count) or (..., count), -1 behind the last. q is the softmax of the indexer's scores of
    selected keys; what the mode hides of them takes no part. p is the mean over heads, with the statistics as given
    (that these are of the selected keys is the caller's part). Raises NotImplementedError for ``sinks``.
    """
    api, layout = "npu_sparse_lightning_indexer_grad_kl_loss", layout or "BSND"
    refuse(api, sinks=sinks)
    attention = _Attention(query, key, query_rope, key_rope, softmax_max, softmax_sum, scale_value)
    by_query = _by_sequence(api, attention, (query_index, weights, sparse_indices), layout, actual_seq_qlen)
    keys = [sequences(api, operand, layout, actual_seq_klen) for operand in (attention.keys(), key_index)]
    results = []
    for (q, maximum, total, q_index, factors, selection), k, k_index in zip(by_query, *keys, strict=True):
        window = {"pre_tokens": pre_tokens, "next_tokens": next_tokens}
        counts = visible_counts(api, sparse_mode, len(q), len(k), **window)
        shown = _selected(selection, k.shape[1], len(k)) & visible_keys(counts, len(k)).unsqueeze(1)
        p = _attention_weights(q, k, maximum, total, scale_value, shown)
        scores = index_scores(q_index, factors, k_index).masked_fill(~shown, -torch.inf)
        # a query without keys has no distribution
        estimate = torch.softmax(scores, -1).masked_fill(~shown, 0.0)
        results.append(_gradients(q_index, factors, k_index, p, estimate))
    return _gathered(results, (query_index, key_index, weights), layout)


@dataclass(frozen=True, slots=True)
class _Attention:
    """The attention that an indexer learns from."""

    query: Tensor
    key: Tensor
    query_rope: Tensor | None
    key_rope: Tensor | None
    softmax_max: Tensor
    softmax_sum: Tensor
    scale: float

    def queries(self) -> Tensor:
        """Return the queries with all their dimensions."""
        return self.query if self.query_rope is None else torch.cat([self.query, self.query_rope], -1)

    def keys(self) -> Tensor:
        """Return the keys with all their dimensions."""
        return self.key if self.key_rope is None else torch.cat([self.key, self.key_rope], -1)

    def statistics(self, layout: str) -> tuple[Tensor, Tensor]:
        """Return maximum and sum by query and head, (B, S1, N1) or (T1, N1), of (B, N2, S1, G) or (N2, T1, G)."""
        head = 0 if layout == "TND" else 1
        maximum, total = (statistic.movedim(head, -2).flatten(-2) for statistic in (self.softmax_max, self.softmax_sum))
        return maximum, total


def _by_sequence(
    api: str, attention: _Attention, of_queries: tuple[Tensor, ...], layout: str, lengths: Lengths
) -> list[tuple[Tensor, ...]]:
    """Return of each sequence its queries, their maxima and sums, and what else there is of each query."""
    tensors = (attention.queries(), *attention.statistics(layout), *of_queries)
    return list(zip(*(sequences(api, tensor, layout, lengths) for tensor in tensors), strict=True))


def _of_index(api: str, statistic: Tensor, layout: str, lengths: Lengths) -> list[Tensor]:
    """Return of each sequence an indexer's maxima or sums, (S1, N2), of (B, N2, S1) or (N2, T1)."""
    return sequences(api, statistic.transpose(-1, -2), layout, lengths)


def _attention_weights(q: Tensor, k: Tensor, maximum: Tensor, total: Tensor, scale: float, shown: Tensor) -> Tensor:
    """Return the mean over heads of exp(scale * q k - maximum) / total, (S1, 1, S2), 0 where ``shown`` is false."""
    groups = q.shape[1] // k.shape[1]
    mean = q.new_zeros(len(q), len(k))
    for head in range(q.shape[1]):
        exponents = q[:, head] @ k[:, head // groups].T * scale - maximum[:, head].unsqueeze(-1)
        mean += torch.exp(exponents.masked_fill(~shown[:, 0], -torch.inf)) / total[:, head].unsqueeze(-1)
    return (mean / q.shape[1]).unsqueeze(1)


def _selected(selection: Tensor, heads: int, columns: int) -> Tensor:
    """Return which keys are selected, (S1, N2, S2), by (S1, N2, count) or (S1, count) positions, -1 for none."""
    places = selection.reshape(len(selection), heads, selection.shape[-1]).long()
    shown = torch.zeros(*places.shape[:2], columns + 1, dtype=torch.bool)
    return shown.scatter_(-1, places.masked_fill(places < 0, columns), True)[..., :columns]


def _gradients(
    q_index: Tensor, factors: Tensor, k_index: Tensor, p: Tensor, estimate: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients for queries, keys and weights of an indexer, and the loss, of the two distributions."""
    logarithms = torch.log(p.clamp(min=_LEAST_PROBABILITY)) - torch.log(estimate.clamp(min=_LEAST_PROBABILITY))
    with torch.enable_grad():
        q, w, k = (operand.detach().requires_grad_() for operand in (q_index, factors, k_index))
        scores = index_scores(q, w, k)
        of_q, of_w, of_k = torch.autograd.grad(scores, (q, w, k), (estimate - p).expand_as(scores))
    return of_q, of_k, of_w, (p * logarithms).sum()


def _gathered(
    results: list[tuple[Tensor, Tensor, Tensor, Tensor]], inputs: tuple[Tensor, Tensor, Tensor], layout: str
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    of_q, of_k, of_w, losses = zip(*results, strict=True)
    gradients = [
        joined(parts, row_count(input_tensor, layout), layout)
        for parts, input_tensor in zip((of_q, of_k, of_w), inputs, strict=True)
    ]
    return gradients[0], gradients[1], gradients[2], at_least_float32(torch.stack(list(losses)).sum().reshape(1))

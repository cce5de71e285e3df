"""Attention from pairs (i, k) over paths through j, as a graph's edges have it, forward and gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_msprobe.extensions.npu_operators.reference_arguments import at_least_float32

if TYPE_CHECKING:
    from torch import Tensor

# the device repeats each row's maximum and sum to fill a 32-byte block of float32
_STATISTIC_COPIES = 8


def npu_fused_floyd_attention(
    query_ik: Tensor,
    key_ij: Tensor,
    value_ij: Tensor,
    key_jk: Tensor,
    value_jk: Tensor,
    *,
    atten_mask: Tensor | None = None,
    scale_value: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (maximum, sum, p value_ij + p value_jk), p = softmax over j of scale * (q_ik key_ij + q_ik key_jk).

    ``query_ik`` is (B, H, I, K, D), key and value ij (B, H, I, J, D), jk (B, H, J, K, D). ``atten_mask``
    (B, 1, I, 1, J) is true where j is hidden; where all are, the result is 0 (assumed). Maximum and sum of
    exp(score - maximum) are (B, H, I, K, 8), eight times each. Formulas of op-plugin's documentation.
    """
    weights, maximum, total = _exponentials(query_ik, key_ij, key_jk, atten_mask, scale_value)
    weights = weights / total.masked_fill(total == 0, 1.0)
    out = torch.einsum("bhikj,bhijc->bhikc", weights, value_ij) + torch.einsum("bhikj,bhjkc->bhikc", weights, value_jk)
    statistics = [
        at_least_float32(each.detach()).expand(*each.shape[:-1], _STATISTIC_COPIES) for each in (maximum, total)
    ]
    return statistics[0], statistics[1], out


def npu_fused_floyd_attention_backward(
    grad_output: Tensor, query_ik: Tensor, key_ij: Tensor, value_ij: Tensor, key_jk: Tensor, value_jk: Tensor,
    attention_out: Tensor, softmax_max: Tensor, softmax_sum: Tensor,
    *, atten_mask: Tensor | None = None, scale_value: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of :func:`npu_fused_floyd_attention`, in the order of its tensors.

    Weights are exp(score - ``softmax_max``) / ``softmax_sum``, as the forward saved them.
    """
    scores = _scores(query_ik, key_ij, key_jk, atten_mask, scale_value)
    highest, divisor = (each[..., :1].to(scores.dtype) for each in (softmax_max, softmax_sum))
    p = torch.exp(scores - highest.masked_fill(divisor == 0, 0.0))
    p = p / divisor.masked_fill(divisor == 0, 1.0)
    of_p = torch.einsum("bhikc,bhijc->bhikj", grad_output, value_ij)
    of_p = of_p + torch.einsum("bhikc,bhjkc->bhikj", grad_output, value_jk)
    of_scores = p * (of_p - (grad_output * attention_out).sum(-1, keepdim=True)) * scale_value
    of_query = torch.einsum("bhikj,bhijc->bhikc", of_scores, key_ij)
    of_query = of_query + torch.einsum("bhikj,bhjkc->bhikc", of_scores, key_jk)
    return (
        of_query,
        torch.einsum("bhikj,bhikc->bhijc", of_scores, query_ik),
        torch.einsum("bhikj,bhikc->bhijc", p, grad_output),
        torch.einsum("bhikj,bhikc->bhjkc", of_scores, query_ik),
        torch.einsum("bhikj,bhikc->bhjkc", p, grad_output),
    )


def _scores(q: Tensor, k_ij: Tensor, k_jk: Tensor, hidden: Tensor | None, scale: float) -> Tensor:
    """Return the scores (B, H, I, K, J), -inf for what is hidden."""
    scores = torch.einsum("bhikc,bhijc->bhikj", q, k_ij) + torch.einsum("bhikc,bhjkc->bhikj", q, k_jk)
    scores = scores * scale
    return scores if hidden is None else scores.masked_fill(hidden.bool(), -torch.inf)


def _exponentials(
    q: Tensor, k_ij: Tensor, k_jk: Tensor, hidden: Tensor | None, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return exp(score - maximum), and of each row maximum and sum, (B, H, I, K, 1)."""
    scores = _scores(q, k_ij, k_jk, hidden, scale)
    maximum = scores.detach().amax(-1, keepdim=True)
    weights = torch.exp(scores - maximum.masked_fill(maximum == -torch.inf, 0.0))
    return weights, maximum, weights.sum(-1, keepdim=True)

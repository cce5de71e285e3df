"""Attention of one sequence, of which each query sees selected keys: what the operators compute in their layouts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pytest_msprobe.engine.replay.references.sparse_attention.token_layouts import by_rows


def attend_selected(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    selected: Callable[[slice], Tensor],
    scale: float,
    sinks: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return softmax(scale * q k^T) v over selected keys, (S1, N1, Dv), and each row's maximum and sum, (S1, N1).

    ``q`` is (S1, N1, D), ``k`` (S2, N2, D) and ``v`` (S2, N2, Dv); N1 / N2 heads share one of the keys. ``selected``
    gives for some of the queries how often each key is selected, (rows, N2 or N1, S2): a key that is selected twice
    counts twice. A query without keys gives 0 and has no gradient. ``sinks`` (N1) is for each head the score of one
    more key, whose value is 0. Maximum and sum, of exp(score - maximum), are detached; without keys they are those
    of the sink, otherwise -inf and 0.
    """
    heads, groups = q.shape[1], q.shape[1] // k.shape[1]
    keys, values = (each.transpose(0, 1).repeat_interleave(groups, 0) for each in (k, v))

    def rows_of(rows: slice) -> tuple[Tensor, Tensor, Tensor]:
        times = selected(rows)
        times = times.repeat_interleave(heads // times.shape[1], 1).transpose(0, 1)
        # (N1, rows, S2)
        scores = (q[rows].transpose(0, 1) @ keys.mT * scale).masked_fill(times == 0, -torch.inf)
        maximum = scores.detach().amax(-1) if k.shape[0] else scores.new_full(scores.shape[:2], -torch.inf)
        if sinks is not None:
            maximum = torch.maximum(maximum, sinks.detach().to(scores.dtype).unsqueeze(-1))
        weights = times * torch.exp(scores - maximum.masked_fill(maximum == -torch.inf, 0.0).unsqueeze(-1))
        total = weights.sum(-1)
        if sinks is not None:
            total = total + torch.exp(sinks.to(scores.dtype).unsqueeze(-1) - maximum)
        out = weights @ values / total.masked_fill(total == 0, 1.0).unsqueeze(-1)
        return out.transpose(0, 1), maximum.T, total.detach().T

    out, maximum, total = by_rows(rows_of, q.shape[0], heads * k.shape[0])
    return out, maximum, total


def gradients_of_selected(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    selected: Callable[[slice], Tensor],
    scale: float,
    saved: tuple[Tensor, Tensor, Tensor],
    grad: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of :func:`attend_selected` for q, k and v.

    ``saved`` are the forward's output and, of each row, maximum and sum: the weights are exp(score - maximum) / sum.
    """
    heads, groups = q.shape[1], q.shape[1] // k.shape[1]
    out, maximum, total = saved
    keys, values = (each.transpose(0, 1).repeat_interleave(groups, 0) for each in (k, v))
    grad_k, grad_v = torch.zeros_like(keys), torch.zeros_like(values)

    def rows_of(rows: slice) -> tuple[Tensor]:
        queries, arriving = q[rows].transpose(0, 1), grad[rows].transpose(0, 1)
        times = selected(rows)
        times = times.repeat_interleave(heads // times.shape[1], 1).transpose(0, 1)
        exponents = queries @ keys.mT * scale - maximum[rows].T.unsqueeze(-1)
        divisor = total[rows].T.unsqueeze(-1)
        weights = torch.exp(exponents.masked_fill(times == 0, -torch.inf)) * times
        weights = weights / divisor.masked_fill(divisor == 0, 1.0)
        along = (grad[rows] * out[rows]).sum(-1).T.unsqueeze(-1)
        of_scores = weights * (arriving @ values.mT - along) * scale
        grad_k.add_(of_scores.mT @ queries)
        grad_v.add_(weights.mT @ arriving)
        return ((of_scores @ keys).transpose(0, 1),)

    (grad_q,) = by_rows(rows_of, q.shape[0], heads * k.shape[0])

    def shared(gradient: Tensor) -> Tensor:
        return torch.unflatten(gradient, 0, (-1, groups)).sum(1).transpose(0, 1)

    return grad_q, shared(grad_k), shared(grad_v)

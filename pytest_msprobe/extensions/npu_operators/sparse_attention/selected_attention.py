"""Attention of one sequence, of which each query sees selected keys: what the operators compute in their layouts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.reference_arguments import at_least_float32
from pytest_msprobe.extensions.npu_operators.sparse_attention.token_layouts import by_rows


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
    gives for some of the queries how often each key is selected, (rows, N2, N1 or 1, S2): a key that is selected twice
    counts twice. A query without keys gives 0 and has no gradient. ``sinks`` (N1) is for each head the score of one
    more key, whose value is 0. Maximum and sum, of exp(score - maximum), are detached and float32 or wider; without
    keys they are those of the sink, otherwise -inf and 0.
    """
    keys, values = k.transpose(0, 1), v.transpose(0, 1)
    of_sink = None if sinks is None else sinks.to(q.dtype).view(len(keys), -1, 1)

    def rows_of(rows: slice) -> tuple[Tensor, Tensor, Tensor]:
        times = _by_group(selected(rows), len(keys))
        scores = _products(_grouped(q[rows], len(keys)), keys.mT) * scale
        scores = scores.masked_fill(times == 0, -torch.inf)
        maximum = scores.detach().amax(-1) if k.shape[0] else scores.new_full(scores.shape[:-1], -torch.inf)
        if of_sink is not None:
            maximum = torch.maximum(maximum, of_sink.detach())
        weights = times * torch.exp(scores - maximum.masked_fill(maximum == -torch.inf, 0.0).unsqueeze(-1))
        total = weights.sum(-1)
        if of_sink is not None:
            total = total + torch.exp(of_sink - maximum)
        out = _products(weights, values) / total.masked_fill(total == 0, 1.0).unsqueeze(-1)
        highest, summed = (at_least_float32(_by_query(each)) for each in (maximum, total.detach()))
        return _by_query(out), highest, summed

    out, maximum, total = by_rows(rows_of, q.shape[0], q.shape[1] * k.shape[0])
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
    out, maximum, total = saved[0], saved[1].to(q.dtype), saved[2].to(q.dtype)
    keys, values = k.transpose(0, 1), v.transpose(0, 1)
    grad_k, grad_v = torch.zeros_like(keys), torch.zeros_like(values)

    def rows_of(rows: slice) -> tuple[Tensor]:
        times = _by_group(selected(rows), len(keys))
        queries, arriving, there = (_grouped(each[rows], len(keys)) for each in (q, grad, out))
        highest, divisor = (_grouped(each[rows].unsqueeze(-1), len(keys)) for each in (maximum, total))
        exponents = _products(queries, keys.mT) * scale - highest
        weights = torch.exp(exponents.masked_fill(times == 0, -torch.inf)) * times
        weights = weights / divisor.masked_fill(divisor == 0, 1.0)
        along = (arriving * there).sum(-1, keepdim=True)
        of_scores = weights * (_products(arriving, values.mT) - along) * scale
        grad_k.add_(of_scores.flatten(1, 2).mT @ queries.flatten(1, 2))
        grad_v.add_(weights.flatten(1, 2).mT @ arriving.flatten(1, 2))
        return (_by_query(_products(of_scores, keys)),)

    (grad_q,) = by_rows(rows_of, q.shape[0], q.shape[1] * k.shape[0])
    return grad_q, grad_k.transpose(0, 1), grad_v.transpose(0, 1)


def _grouped(x: Tensor, keys: int) -> Tensor:
    """Return (N2, N1 / N2, rows, D) of (rows, N1, D), for ``keys`` N2."""
    return torch.unflatten(x.transpose(0, 1), 0, (keys, -1))


def _by_query(x: Tensor) -> Tensor:
    """Return (rows, N1, ...) of (N2, N1 / N2, rows, ...)."""
    return x.flatten(0, 1).transpose(0, 1)


def _by_group(times: Tensor, keys: int) -> Tensor:
    """Return (N2, 1, rows, S2) of (rows, N2, S2), or (N2, N1 / N2, rows, S2) of (rows, N1, S2); N may be 1 for all."""
    by_head = times.transpose(0, 1)
    return by_head.unsqueeze(1) if len(by_head) == 1 else torch.unflatten(by_head, 0, (keys, -1))


def _products(x: Tensor, y: Tensor) -> Tensor:
    """Multiply the rows of all heads that share a key, (N2, N1 / N2, rows, D), by one matrix for each, (N2, D, S)."""
    return torch.unflatten(x.flatten(1, 2) @ y, 1, x.shape[1:3])

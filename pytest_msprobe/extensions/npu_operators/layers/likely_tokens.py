"""Tokens sampled by their scores: the k largest, those that make up a share p, and one of them."""

from __future__ import annotations

import torch
from torch import Tensor

# the largest k that the sampling operator knows, and what it rounds the limit up to
_MOST_KEPT, _STEP_OF_LIMIT = 1024, 8


def npu_top_k_top_p(logits: Tensor, p: Tensor | None = None, k: Tensor | None = None) -> Tensor:
    """Return ``logits`` with -inf in place of what is below the k-th largest, then outside of the share ``p``.

    From the smallest up, those are outside whose sum of probabilities is at most 1 - p; the largest never is.
    """
    ordered, order = logits.sort(dim=-1, stable=True)
    if k is not None:
        threshold = ordered.gather(1, (logits.shape[1] - k.long()).clamp(0, logits.shape[1] - 1)[:, None])
        ordered = ordered.masked_fill(ordered < threshold, -torch.inf)
    if p is not None:
        outside = ordered.softmax(-1).cumsum(-1) <= 1 - p[:, None]
        outside[:, -1] = False
        ordered = ordered.masked_fill(outside, -torch.inf)
    return ordered.gather(1, order.argsort(-1))


def npu_top_k_top_p_sample(
    logits: Tensor, top_k: Tensor, top_p: Tensor, q: Tensor | None = None, eps: float | None = 1e-8,
    is_need_logits: bool | None = False, top_k_guess: int | None = 32, min_ps: Tensor | None = None,
    ks_max: int | None = 1024, input_is_logits: bool | None = True, post_sample: str | None = "qSample",
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return (a token of each row, the scores that are left if they are asked for).

    A row is put in order of size where one of its filters applies; ``q`` weighs the scores in that order.
    """
    size = logits.shape[1]
    limit = -(-min(_MOST_KEPT if ks_max is None else ks_max, _MOST_KEPT) // _STEP_OF_LIMIT) * _STEP_OF_LIMIT
    gone = -torch.inf if input_is_logits else 0.0
    tokens, selected = [], torch.full(logits.shape, gone, dtype=torch.float32)
    for number, row in enumerate(logits):
        k, share = int(top_k[number]), float(top_p[number])
        by_number, by_share = 1 <= k <= min(size, limit), share < 1
        is_ordered = by_number or by_share
        order = row.argsort(descending=True, stable=True) if is_ordered else torch.arange(size)
        order = order[:k] if by_number else order
        shares = _shares(row[order], input_is_logits)
        left = torch.ones(len(order), dtype=torch.bool)
        if by_share:
            left = shares.cumsum(0) - shares <= share if share > 0 else ~left
            left[0] = True
        if min_ps is not None and float(min_ps[number]) > 0:
            left &= shares >= shares.max() * min(float(min_ps[number]), 1.0)
        order = order[left]
        weights = _shares(row[order], input_is_logits)
        if str(post_sample).lower() == "multinomial":
            best = int(weights.multinomial(1))
        elif q is None or post_sample == "None":
            best = int(weights.argmax())
        else:
            best = int((weights / (q[number, : len(order)].abs() + (eps or 0.0))).argmax())
        tokens.append(int(order[best]))
        selected[number, order] = row[order].float()
    return torch.tensor(tokens, dtype=torch.int64), selected if is_need_logits else selected.new_empty(0)


def _shares(scores: Tensor, are_logits: bool | None) -> Tensor:
    return scores.softmax(-1) if are_logits else scores

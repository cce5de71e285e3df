"""Cross entropy of a linear layer whose rows, the vocabulary, are spread over ranks: what each rank computes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_msprobe.extensions.npu_operators.reference_arguments import at_least_float32, refuse

if TYPE_CHECKING:
    from torch import Tensor

_BITS = 8


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
    chosen = torch.zeros_like(softmax).scatter(
        -1, masked_target.long().unsqueeze(-1), is_inside.to(softmax.dtype).unsqueeze(-1)
    )
    of_logits = ((softmax - chosen) * grad.unsqueeze(-1)).to(input.dtype)
    return of_logits @ weight, of_logits.mT @ input

"""Attention of one batch in (B, N, S, D), as it is defined: what every fused attention computes in its layout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
import torch.nn.functional as F

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


class Attend(Protocol):
    """Attention of (B, N, S, D) tensors, by its definition or by a kernel."""

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, hidden: Tensor | None, scale: float,
        keep_prob: float, sink: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Return the output (B, N, Sq, Dv), and of each row of scores maximum and sum of exp(score - maximum)."""


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    hidden: Tensor | None,
    scale: float,
    keep_prob: float,
    sink: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return dropout(softmax(scale * (q k^T + bias))) v, and each row's maximum and sum, (B, N, Sq), detached.

    Heads are grouped where q has a multiple of k's. ``hidden`` is true where a key is hidden from a query. A row with
    everything hidden gives 0, has no gradient, and -inf and 0 for its statistics. ``sink`` (N) is for each head the
    score of one more key, whose value is 0.
    """
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    weights, maximum, total = exponentials(q, k, bias, hidden, scale, sink)
    # a row with everything hidden has nothing to divide by
    weights = weights / total.masked_fill(total == 0, 1.0)
    if keep_prob < 1:
        weights = F.dropout(weights, 1 - keep_prob)
    return weights @ v, maximum.squeeze(-1), total.detach().squeeze(-1)


def exponentials(
    q: Tensor, k: Tensor, bias: Tensor | None, hidden: Tensor | None, scale: float, sink: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return exp(score - maximum), (B, N, Sq, Skv), and of each row the maximum score and the sum, (B, N, Sq, 1)."""
    scores = q @ k.mT
    if bias is not None:
        scores = scores + bias
    scores = scores * scale
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    if k.shape[2]:
        maximum = scores.detach().amax(-1, keepdim=True)
    else:
        maximum = scores.new_full((*scores.shape[:-1], 1), -torch.inf)
    if sink is not None:
        sink = sink.reshape(1, -1, 1, 1).to(scores.dtype)
        maximum = torch.maximum(maximum, sink.detach())
    # a row with everything hidden has no maximum to subtract
    weights = torch.exp(scores - maximum.masked_fill(maximum == -torch.inf, 0.0))
    total = weights.sum(-1, keepdim=True)
    return weights, maximum, total if sink is None else total + torch.exp(sink - maximum)


#: The layouts that have a dimension for the batch.
BATCHED_LAYOUTS = ("BSH", "SBH", "BSND", "BNSD")


def head_count(key: Tensor, layout: str, head_dim: int) -> int:
    """Return how many heads a tensor of ``layout`` has, each of ``head_dim`` dimensions."""
    if layout == "BNSD":
        return key.shape[1]
    return key.shape[2] if layout == "BSND" else key.shape[2] // head_dim


def heads_first(tensor: Tensor, layout: str, heads: int) -> Tensor:
    """Transpose a tensor of ``layout`` into (B, N, S, D)."""
    if layout == "BNSD":
        return tensor
    batch_first = tensor.transpose(0, 1) if layout == "SBH" else tensor
    return batch_first.reshape(*batch_first.shape[:2], heads, -1).transpose(1, 2)


def in_layout(tensor: Tensor, layout: str) -> Tensor:
    """Transpose a (B, N, S, D) tensor into ``layout``."""
    if layout == "BNSD":
        return tensor
    by_token = tensor.transpose(1, 2)
    if layout == "BSND":
        return by_token
    flat = by_token.flatten(-2)
    return flat.transpose(0, 1) if layout == "SBH" else flat


_BATCHED_MODES = (0, 1, 2, 3, 4, 5, 6)
_PACKED_MODES = (0, 1, 2, 3, 4, 6, 7, 8)
# the side of the triangle that stands for the whole mask in the compressed modes
_COMPRESSED = 2048


@dataclass(frozen=True, slots=True)
class AttentionMask:
    """``atten_mask`` and the arguments that say how to read it; see ``npu_fusion_attention`` for the modes.

    ``packed`` is true for input layout TND; ``api`` is whose arguments they are. Raises ValueError for a mode that the
    layout does not have, and for mode 6 without ``prefix``.
    """

    tensor: Tensor | None
    sparse_mode: int
    pre_tockens: int
    next_tockens: int
    prefix: Sequence[int] | None
    packed: bool
    api: str = "npu_fusion_attention"

    def __post_init__(self) -> None:
        modes = _PACKED_MODES if self.packed else _BATCHED_MODES
        if self.sparse_mode not in modes:
            raise ValueError(
                f"sparse_mode {self.sparse_mode} of {self.api} is not one of {modes}, "
                f"those {'with' if self.packed else 'without'} input_layout TND"
            )
        if self.sparse_mode == 6 and self.tensor is not None and self.prefix is None:
            raise ValueError(f"sparse_mode 6 of {self.api} needs prefix, one number per batch entry")

    def of_batch(self, batch: int, rows: int, columns: int) -> Tensor | None:
        """Return what is hidden, broadcastable to (batch, N, rows, columns), or None where nothing is."""
        if self.tensor is None:
            return None
        if self.sparse_mode != 6:
            return self._hidden(self.tensor, self.sparse_mode, rows, columns, 0)
        entries = [self._hidden(self.tensor, 6, rows, columns, entry) for entry in range(batch)]
        return torch.stack([entry.expand(1, rows, columns) for entry in entries])

    def of_sequence(self, index: int, last: int, rows: int, columns: int) -> Tensor | None:
        """Return what is hidden (rows, columns) in the packed sequence ``index``, ``last`` being the final one."""
        if self.tensor is None:
            return None
        mode = self.sparse_mode
        if mode == 7:
            mode = 4 if index == last else 3
        elif mode == 8:
            mode = 4 if index == 0 else 2
        return self._hidden(self.tensor, mode, rows, columns, index)

    def _hidden(self, mask: Tensor, mode: int, rows: int, columns: int, entry: int) -> Tensor:
        right = torch.arange(columns, device=mask.device) - torch.arange(rows, device=mask.device).unsqueeze(-1)
        if mode in (0, 1, 5):
            shown = mask.bool()[..., :rows, :columns]
            return shown | self._outside_band(right) if mode == 0 else shown
        if mask.shape[-2:] == (rows, columns) and min(rows, columns) < _COMPRESSED:
            return mask.bool()
        if mode == 2:
            return right > 0
        from_end = right - (columns - rows)
        if mode == 4:
            return self._outside_band(from_end)
        above = from_end > 0
        if mode == 6 and self.prefix is not None:
            above &= torch.arange(columns, device=mask.device) >= self.prefix[entry]
        return above

    def _outside_band(self, right: Tensor) -> Tensor:
        return (right > self.next_tockens) | (right < -self.pre_tockens)

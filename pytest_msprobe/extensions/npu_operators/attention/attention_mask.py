"""Attention masks of fused attention, by sparse mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

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

    given: Tensor | None
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
        if self.sparse_mode == 6 and self.given is not None and self.prefix is None:
            raise ValueError(f"sparse_mode 6 of {self.api} needs prefix, one number per batch entry")

    def of_batch(self, batch: int, rows: int, columns: int) -> Tensor | None:
        """Return what is hidden, broadcastable to (batch, N, rows, columns), or None where nothing is."""
        if self.given is None:
            return None
        if self.sparse_mode != 6:
            return self._hidden(self.given, self.sparse_mode, rows, columns, 0)
        entries = [self._hidden(self.given, 6, rows, columns, entry) for entry in range(batch)]
        return torch.stack([entry.expand(1, rows, columns) for entry in entries])

    def of_sequence(self, index: int, last: int, rows: int, columns: int) -> Tensor | None:
        """Return what is hidden (rows, columns) in the packed sequence ``index``, ``last`` being the final one."""
        if self.given is None:
            return None
        mode = self.sparse_mode
        if mode == 7:
            mode = 4 if index == last else 3
        elif mode == 8:
            mode = 4 if index == 0 else 2
        return self._hidden(self.given, mode, rows, columns, index)

    def _hidden(self, given: Tensor, mode: int, rows: int, columns: int, entry: int) -> Tensor:
        right = torch.arange(columns, device=given.device) - torch.arange(rows, device=given.device).unsqueeze(-1)
        if mode in (0, 1, 5):
            shown = given.bool()[..., :rows, :columns]
            return shown | self._outside_band(right) if mode == 0 else shown
        if given.shape[-2:] == (rows, columns) and min(rows, columns) < _COMPRESSED:
            return given.bool()
        if mode == 2:
            return right > 0
        from_end = right - (columns - rows)
        if mode == 4:
            return self._outside_band(from_end)
        above = from_end > 0
        if mode == 6 and self.prefix is not None:
            above &= torch.arange(columns, device=given.device) >= self.prefix[entry]
        return above

    def _outside_band(self, right: Tensor) -> Tensor:
        return (right > self.next_tockens) | (right < -self.pre_tockens)

"""Keys and values of inference attention: as they are, in blocks of a cache, behind a common prefix, quantized."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from pytest_msprobe.extensions.npu_operators.attention.inference_sequences import SequenceLayout, Span, spans_of
from pytest_msprobe.extensions.npu_operators.reference_arguments import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


@dataclass(frozen=True, slots=True)
class SequenceKeys:
    """The keys and values of one sequence, (N, L, D), those of the prefix first.

    ``first_column`` is the column of a whole mask, or of what is added to scores, that belongs to the first key.
    """

    key: Tensor
    value: Tensor
    first_column: int = 0


@dataclass(frozen=True, slots=True)
class Dequantization:
    """How whole numbers of keys or values become numbers again: (x + offset) * scale.

    ====  ===============================================  =================================
    mode  the parameters are those of                      shape
    ====  ===============================================  =================================
    0     every element of a token, or of the tensor       N * D numbers in any shape, or one
    1     every token                                      (1, B, S) or (B, S)
    2     every head                                       (N)
    3     every token of a head                            (B, N, S)
    4     every token, in blocks as the keys               (blocks, tokens)
    5     every token of a head, in blocks as the keys     (blocks, N, tokens)
    ====  ===============================================  =================================
    """

    scale: Tensor
    offset: Tensor | None
    mode: int

    def of_tokens(self, x: Tensor, span: Span, blocks: Tensor | None, dtype: torch.dtype) -> Tensor:
        """Return (N, L, D) in ``dtype``, L being the tokens of the span; ``blocks`` are those that they lie in."""
        scale = self._laid(self.scale, x, span, blocks)
        shifted = x if self.offset is None else x + self._laid(self.offset, x, span, blocks)
        return (shifted * scale).to(dtype)

    def _laid(self, parameter: Tensor, x: Tensor, span: Span, blocks: Tensor | None) -> Tensor:
        heads, length, width = x.shape
        if self.mode == 0:
            return parameter.reshape(1) if parameter.numel() == 1 else parameter.reshape(heads, 1, width)
        if self.mode == 1:
            return parameter.reshape(-1, parameter.shape[-1])[span.entry, span.rows].reshape(1, length, 1)
        if self.mode == 2:
            return parameter.reshape(heads, 1, 1)
        if self.mode == 3:
            return parameter[span.entry, :, span.rows].unsqueeze(-1)
        if blocks is None:
            raise ValueError(f"parameters in blocks (mode {self.mode}) need block_table")
        in_order = parameter[blocks]
        flat = in_order.flatten().unsqueeze(0) if self.mode == 4 else in_order.transpose(0, 1).flatten(1)
        return flat[:, :length].unsqueeze(-1)


@dataclass(frozen=True, slots=True)
class Keys:
    """The arguments that say what the keys and values are, whatever an operator calls them.

    ``key_rope`` are further dimensions of the keys. ``block_table`` names for each sequence the blocks of the caches
    that ``key``, ``value`` and ``key_rope`` are then: (blocks, tokens, N * D), (blocks, N, tokens, D), or, as the
    device stores it, (blocks, N, D / c, tokens, c). The prefixes are those of every sequence, in the layout of keys.
    """

    key: Tensor
    value: Tensor
    heads: int
    lengths: Sequence[int] | None
    lengths_name: str
    key_rope: Tensor | None = None
    block_table: Tensor | None = None
    key_prefix: Tensor | None = None
    value_prefix: Tensor | None = None
    prefix_length: int | None = None
    rows_behind: int | None = None
    key_dequantization: Dequantization | None = None
    value_dequantization: Dequantization | None = None

    def of_sequences(self, api: str, layout: SequenceLayout, dtype: torch.dtype) -> list[SequenceKeys]:
        """Return the keys and values of every sequence in ``dtype``.

        Raises NotImplementedError for whole numbers of which nothing says what they mean, ValueError for blocks
        without lengths.
        """
        for name, given, how in (
            ("key", self.key, self.key_dequantization),
            ("value", self.value, self.value_dequantization),
        ):
            is_whole = not given.is_floating_point()
            refuse(
                api,
                **{
                    f"{name} of {given.dtype}": given
                    if is_whole and (how is None or given.dtype is torch.int32)
                    else None
                },
            )
        if self.block_table is None:
            found = self._dense(api, layout, dtype)
        else:
            found = self._paged(api, self.block_table, dtype)
        return found if self.key_prefix is None else [self._behind_prefix(each, layout, dtype) for each in found]

    def _dense(self, api: str, layout: SequenceLayout, dtype: torch.dtype) -> list[SequenceKeys]:
        key, value = (layout.with_entries(each, self.heads) for each in (self.key, self.value))
        rope = None if self.key_rope is None else layout.with_entries(self.key_rope, self.heads)
        spans = spans_of(api, layout, key, self.lengths, self.lengths_name, self.rows_behind)
        found = []
        for span in spans:
            own = tuple(each[span.entry, :, span.rows] for each in (key, value))
            own_rope = None if rope is None else rope[span.entry, :, span.rows]
            first_column = 0 if layout.is_packed else span.begin
            found.append(self._sequence(own[0], own[1], own_rope, span, None, dtype, first_column))
        return found

    def _paged(self, api: str, block_table: Tensor, dtype: torch.dtype) -> list[SequenceKeys]:
        if not self.lengths:
            raise ValueError(f"block_table of {api} needs {self.lengths_name}")
        count = block_table.shape[0]
        lengths = [int(length) for length in self.lengths][:count]
        lengths = lengths * count if len(lengths) == 1 else lengths
        found = []
        for entry, length in enumerate(lengths):
            blocks = block_table[entry].long().clamp(0, len(self.key) - 1)
            key, value = (_in_blocks(each, blocks, self.heads)[:, :length] for each in (self.key, self.value))
            rope = None if self.key_rope is None else _in_blocks(self.key_rope, blocks, self.heads)[:, :length]
            found.append(self._sequence(key, value, rope, Span(entry, 0, length), blocks, dtype, 0))
        return found

    def _sequence(
        self,
        key: Tensor,
        value: Tensor,
        rope: Tensor | None,
        span: Span,
        blocks: Tensor | None,
        dtype: torch.dtype,
        first_column: int,
    ) -> SequenceKeys:
        if self.key_dequantization is not None:
            key = self.key_dequantization.of_tokens(key, span, blocks, dtype)
        if self.value_dequantization is not None:
            value = self.value_dequantization.of_tokens(value, span, blocks, dtype)
        key = key if rope is None else torch.cat((key.to(dtype), rope.to(dtype)), -1)
        return SequenceKeys(key.to(dtype), value.to(dtype), first_column)

    def _behind_prefix(self, own: SequenceKeys, layout: SequenceLayout, dtype: torch.dtype) -> SequenceKeys:
        key, value = (
            layout.with_entries(each, self.heads)[0, :, : self.prefix_length]
            for each in (self.key_prefix, self.value_prefix)
            if each is not None
        )
        span = Span(0, 0, key.shape[1])
        prefix = self._sequence(key, value, None, span, None, dtype, 0)
        return SequenceKeys(torch.cat((prefix.key, own.key), 1), torch.cat((prefix.value, own.value), 1))


def _in_blocks(cache: Tensor, blocks: Tensor, heads: int) -> Tensor:
    """Return the tokens that blocks of a cache hold, in their order: (N, tokens, D)."""
    if cache.dim() == 3:
        return torch.unflatten(cache[blocks].flatten(0, 1), -1, (heads, -1)).transpose(0, 1)
    if cache.dim() == 4:
        return cache[blocks].transpose(0, 1).flatten(1, 2)
    # (n, N, D / c, tokens, c) to (N, n, tokens, D / c, c)
    return cache[blocks].permute(1, 0, 3, 2, 4).flatten(1, 2).flatten(2)

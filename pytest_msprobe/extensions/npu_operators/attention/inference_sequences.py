"""Sequences of inference in each layout, and the keys and values that they attend to."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from pytest_msprobe.extensions.npu_operators.arguments import refuse
from pytest_msprobe.extensions.npu_operators.attention.attention_core import BATCHED_LAYOUTS, heads_first, in_layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

# input layout -> that of query, key and value, and that of the result; T are the tokens of all sequences
_LAYOUTS = {
    "BSH": ("BSH", "BSH"),
    "BSND": ("BSND", "BSND"),
    "BNSD": ("BNSD", "BNSD"),
    "BNSD_BSND": ("BNSD", "BSND"),
    "BSH_BNSD": ("BSH", "BNSD"),
    "BSND_BNSD": ("BSND", "BNSD"),
    "BSH_NBSD": ("BSH", "NBSD"),
    "BSND_NBSD": ("BSND", "NBSD"),
    "BNSD_NBSD": ("BNSD", "NBSD"),
    "NSD": ("NSD", "NSD"),
    "TND": ("TND", "TND"),
    "NTD": ("NTD", "NTD"),
    "TND_NTD": ("TND", "NTD"),
    "NTD_TND": ("NTD", "TND"),
}


@dataclass(frozen=True, slots=True)
class Span:
    """The rows of one sequence: from ``begin`` to before ``end`` of a batch entry; packed sequences share entry 0."""

    entry: int
    begin: int
    end: int

    @property
    def rows(self) -> slice:
        """Return the rows as a slice."""
        return slice(self.begin, self.end)

    @property
    def length(self) -> int:
        """Return how many rows there are."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class SequenceLayout:
    """An ``input_layout``: that of the inputs and that of the result."""

    inputs: str
    result: str

    @classmethod
    def of(cls, api: str, input_layout: str) -> SequenceLayout:
        """Return the layout of that name; raise NotImplementedError for one that is not documented."""
        refuse(api, input_layout=None if input_layout in _LAYOUTS else input_layout)
        return cls(*_LAYOUTS[input_layout])

    @property
    def is_packed(self) -> bool:
        """Return whether the sequences lie one after the other."""
        return self.inputs in ("TND", "NTD")

    def with_entries(self, tensor: Tensor, heads: int) -> Tensor:
        """Reshape queries, keys or values into (entries, N, S, D): (B, N, S, D), or (1, N, T, D) of packed ones."""
        if self.inputs in ("NTD", "NSD"):
            return tensor.unsqueeze(0)
        if self.inputs == "TND":
            return tensor.transpose(0, 1).unsqueeze(0)
        return heads_first(tensor, self.inputs, heads)

    def laid_out(self, tensor: Tensor) -> Tensor:
        """Reshape (entries, N, S, D) into the layout of the result."""
        if self.result in BATCHED_LAYOUTS:
            return in_layout(tensor, self.result)
        if self.result == "NBSD":
            return tensor.transpose(0, 1)
        return tensor[0].transpose(0, 1) if self.result == "TND" else tensor[0]

    def laid_out_statistic(self, statistic: Tensor) -> Tensor:
        """Reshape one number for each row, (entries, N, S), into (B, N, S, 1), or (T, N, 1) of packed sequences."""
        return (statistic[0].transpose(0, 1) if self.is_packed else statistic).unsqueeze(-1)


def spans_of(
    api: str,
    layout: SequenceLayout,
    tensor: Tensor,
    lengths: Sequence[int] | None,
    name: str,
    behind: int | None = None,
) -> list[Span]:
    """Return where each sequence of an (entries, N, S, D) tensor is.

    ``lengths`` (``name`` is the argument's) are one for all batch entries or one each, None where all are as long as
    the tensor; of packed sequences they are the ends. A sequence begins with the first row, or, where ``behind`` says
    how many rows are behind its last one, ends before those. Raises ValueError where packed sequences have no lengths.
    """
    if layout.is_packed:
        if not lengths:
            raise ValueError(f"input_layout {layout.inputs} of {api} needs {name}")
        return [Span(0, begin, end) for begin, end in pairwise([0, *map(int, lengths)])]
    entries, longest = tensor.shape[0], tensor.shape[2]
    every = enumerate(each_length(lengths, entries, longest))
    if behind is None:
        return [Span(entry, 0, min(length, longest)) for entry, length in every]
    end = longest - max(behind, 0)
    # What would begin before the tensor has no rows: the device gives zeros for it.
    return [Span(entry, end - length, end) if length <= end else Span(entry, 0, 0) for entry, length in every]


def each_length(lengths: Sequence[int] | None, batch: int, longest: int) -> list[int]:
    """Return the length of each batch entry; one length is that of all."""
    if not lengths:
        return [longest] * batch
    return [int(length) for length in lengths][:batch] if len(lengths) > 1 else [int(lengths[0])] * batch


def joined(parts: list[Tensor], spans: list[Span], entries: int, rows: int, missing: float = 0.0) -> Tensor:
    """Return what was computed of each sequence, (N, length, ...), in (entries, N, rows, ...).

    The rows of no sequence hold ``missing``: the device clears its results before it computes them.
    """
    first = parts[0]
    whole = first.new_full((entries, first.shape[0], rows, *first.shape[2:]), missing)
    for part, span in zip(parts, spans, strict=True):
        whole[span.entry, :, span.rows] = part
    return whole


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
    """Conversion of whole numbers of keys or values into numbers again: (x + offset) * scale.

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

"""Queries and results of inference attention: layouts, and where the rows of each sequence lie in them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from pytest_msprobe.extensions.npu_operators.attention.attention_core import BATCHED_LAYOUTS, heads_first, in_layout
from pytest_msprobe.extensions.npu_operators.reference_arguments import refuse

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

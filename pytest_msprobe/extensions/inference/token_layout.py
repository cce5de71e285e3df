"""Token layout of a forward pass, packed or padded, and recorded tensors as one row for each token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from msprobe_hooks.dump.tokens import PassTokens
from msprobe_hooks.errors import DumpError
from msprobe_hooks.messages import listed
from pytest_msprobe.modes.compare.measure.load import load
from pytest_msprobe.results.outcomes import Skip

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from msprobe_hooks.dump.values import Value


Integers: TypeAlias = NDArray[np.int64]

# Ranks that hold copies differ by rounding at most, which is 2^-8 in bfloat16.
_COPIES = 1e-2


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens of one request that follow each other in a pass.

    Attributes:
        start: The position of the first in its request; None where it follows earlier passes.
        rows: The rows of the pass that hold the tokens, in the order of positions; those of a padded pass count over
            all sequences.
        token_ids: The tokens, None where they are unknown.
        request: The request's name, empty where it has none.
        logprobs: The log probability that the run gave each token; empty where none is noted.
    """

    start: int | None
    rows: Integers
    token_ids: Integers | None = None
    request: str = ""
    logprobs: Sequence[float | None] = ()

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class TokenLayout:
    """The tokens of a pass; ``shape`` is that of its leading dimensions: (tokens,) or (sequences, tokens of each).

    ``notes`` say what is known of the tokens and is not used.
    """

    shape: tuple[int, ...]
    segments: Sequence[Segment] = field(default_factory=tuple)
    notes: Sequence[str] = ()

    @property
    def rows(self) -> int:
        """The number of rows, padding included."""
        return int(np.prod(self.shape))

    @property
    def tokens(self) -> int:
        """The number of rows that hold a token."""
        return sum(map(len, self.segments))

    def is_equal(self, other: TokenLayout) -> bool:
        """Return whether another pass, of another rank, has the same tokens."""
        return self.shape == other.shape and _key(self) == _key(other)


@dataclass(frozen=True, slots=True)
class TokenInputs:
    """Inputs of a pass, as recorded: tokens, their positions, which of them are padding, where sequences end.

    ``token_ids`` and ``positions`` have the pass's leading dimensions or one of 1 in place of the first;
    ``mask`` (sequences, tokens) is 0 at padding; ``ends`` are cumulative lengths, from 0.
    """

    shape: tuple[int, ...]
    token_ids: Integers | None = None
    positions: Integers | None = None
    mask: Integers | None = None
    ends: Integers | None = None


def token_layout(inputs: TokenInputs, noted: PassTokens | None = None) -> TokenLayout:
    """Return the layout of a pass from what it was given, and from what the program noted of it."""
    layout = TokenLayout(inputs.shape, tuple(_segments(inputs)))
    if noted is None:
        return layout
    lengths = [length for length in noted.lengths if length]
    if [len(segment) for segment in layout.segments] == lengths or sum(lengths) > layout.rows:
        segments: Sequence[Segment] = layout.segments
    else:
        # Lengths say more than positions, which may not have been recorded.
        segments = tuple(_cut(inputs, lengths))
    return TokenLayout(inputs.shape, tuple(_with_notes(segments, noted)), tuple(_unused(segments, noted)))


def _segments(inputs: TokenInputs) -> Iterator[Segment]:
    ids = None if inputs.token_ids is None else inputs.token_ids.reshape(-1)
    if inputs.mask is not None and inputs.mask.shape == inputs.shape and len(inputs.shape) == 2:
        for sequence, row in enumerate(inputs.mask.astype(bool)):
            rows = sequence * inputs.shape[1] + np.flatnonzero(row)
            if len(rows):
                yield Segment(0, rows, None if ids is None else ids[rows])
        return
    rows = np.arange(int(np.prod(inputs.shape)))
    positions = _positions(inputs)
    if inputs.ends is not None and len(inputs.ends) > 1:
        cuts = inputs.ends[1:-1]
    elif positions is not None:
        cuts = np.flatnonzero(np.diff(positions) != 1) + 1
    else:
        cuts = np.arange(0, len(rows), inputs.shape[-1])[1:]
    if len(inputs.shape) == 2:
        cuts = np.union1d(cuts, np.arange(0, len(rows), inputs.shape[1])[1:])
    used = len(rows) if inputs.ends is None else min(len(rows), int(inputs.ends[-1]))
    for piece in np.split(rows, cuts[cuts < len(rows)].astype(np.int64)):
        piece = piece[piece < used]
        if len(piece):
            start = None if positions is None else int(positions[piece[0]])
            if start is None and len(inputs.shape) == 2:
                start = 0
            yield Segment(start, piece, None if ids is None else ids[piece])


def _positions(inputs: TokenInputs) -> Integers | None:
    if inputs.positions is None:
        return None
    whole = int(np.prod(inputs.shape))
    if inputs.positions.size == whole:
        return inputs.positions.reshape(-1)
    if len(inputs.shape) == 2 and inputs.positions.size == inputs.shape[1]:
        return np.tile(inputs.positions.reshape(-1), inputs.shape[0])
    return None


def _cut(inputs: TokenInputs, lengths: Sequence[int]) -> Iterator[Segment]:
    ids = None if inputs.token_ids is None else inputs.token_ids.reshape(-1)
    positions = _positions(inputs)
    first = 0
    for length in lengths:
        rows = np.arange(first, first + length)
        start = None if positions is None else int(positions[first])
        yield Segment(start, rows, None if ids is None else ids[rows])
        first += length


def _with_notes(segments: Sequence[Segment], noted: PassTokens) -> Iterator[Segment]:
    requests = [index for index, length in enumerate(noted.lengths) if length]
    if len(requests) != len(segments):
        yield from segments
        return
    ends = np.cumsum(noted.lengths)
    for index, segment in zip(requests, segments, strict=True):
        own = slice(int(ends[index]) - noted.lengths[index], int(ends[index]))
        yield replace(
            segment,
            request=noted.requests[index],
            start=noted.starts[index] if noted.starts else segment.start,
            token_ids=np.asarray(noted.token_ids[own], dtype=np.int64) if noted.token_ids else segment.token_ids,
            logprobs=tuple(noted.logprobs[own]),
        )


def _unused(segments: Sequence[Segment], noted: PassTokens) -> Iterator[str]:
    """Yield what of the recorded and the noted tokens contradicts each other, and which of the two is used."""
    requests = sum(length > 0 for length in noted.lengths)
    if requests != len(segments):
        yield (
            f"noted tokens not used: {requests} requests of {sum(noted.lengths)} tokens were noted, and "
            f"{len(segments)} of {sum(map(len, segments))} recorded"
        )
        return
    used = [*_with_notes(segments, noted)]
    of_ids = sum(
        int((one.token_ids != other.token_ids).sum())
        for one, other in zip(segments, used, strict=True)
        if one.token_ids is not None and other.token_ids is not None and len(one.token_ids) == len(other.token_ids)
    )
    if of_ids:
        yield f"{of_ids} noted token_ids are not those that were recorded, which are not used"
    starts = [
        one.request
        for other, one in zip(segments, used, strict=True)
        if None not in (one.start, other.start) and one.start != other.start
    ]
    if starts:
        yield f"noted starts are not the recorded positions, which are not used: request {listed(starts)}"


def _key(layout: TokenLayout) -> list[tuple[object, ...]]:
    return [
        (
            segment.request,
            segment.start,
            len(segment),
            None if segment.token_ids is None else segment.token_ids.tobytes(),
        )
        for segment in layout.segments
    ]


class UnalignedError(Exception):
    """A tensor has no row for each token; the message says its shape."""


def read_tensor(value: Value, dump: Dump) -> torch.Tensor:
    """Return a recorded tensor. Raises DumpError where its file is missing or unusable."""
    try:
        return load(value, dump).detach()
    except Skip as skip:
        raise DumpError(f"{value.name}: {skip}") from None


def read_integers(value: Value, dump: Dump) -> Integers | None:
    """Return a recorded tensor of integers or bools, None where it is none or was not kept."""
    dtype = value.dtype.lower()
    if value.data_name is None or not ("int" in dtype or dtype.endswith("bool")):
        return None
    try:
        return read_tensor(value, dump).to(torch.int64).numpy()
    except DumpError:
        return None


def by_row(tensor: torch.Tensor, layout: TokenLayout, *, has_heads: bool = False) -> torch.Tensor:
    """Return a tensor with one row for each row of a pass, or fewer where it holds some of them only.

    Dimensions of (sequences, tokens), (tokens, sequences) and (tokens,) are understood, and where the tensor
    ``has_heads`` several rows for each token. Raises UnalignedError where no dimension is that of the tokens.
    """
    shape = tuple(tensor.shape)
    if len(layout.shape) == 2:
        sequences, tokens = layout.shape
        if shape[:2] == (sequences, tokens):
            return tensor.reshape(layout.rows, -1)
        if shape[:2] == (tokens, sequences):
            return tensor.transpose(0, 1).reshape(layout.rows, -1)
        if len(shape) == 3 and shape[0] == sequences and shape[1] < tokens:
            return tensor.reshape(-1, shape[2])
    if len(shape) == 3 and shape[0] == 1:
        tensor, shape = tensor[0], shape[1:]
    if not shape or (len(shape) == 1 and shape[0] != layout.rows):
        raise UnalignedError(f"shape {list(shape)} for {layout.rows} tokens")
    if has_heads and len(shape) == 2 and shape[0] % layout.rows == 0:
        return tensor.reshape(layout.rows, -1)
    return tensor.reshape(shape[0], -1)


def row_places(rows: int, layout: TokenLayout) -> Integers:
    """Return where in a tensor of so many rows each row of a pass is, -1 for those that it does not hold.

    A tensor holds all rows, padded behind them or not; or the last of each request, as logits of an engine do; or the
    last ones of each sequence.
    """
    if rows >= layout.rows:
        return np.arange(layout.rows)
    places = np.full(layout.rows, -1)
    if rows == len(layout.segments):
        for number, segment in enumerate(layout.segments):
            places[segment.rows[-1]] = number
    elif len(layout.shape) == 2 and rows % layout.shape[0] == 0:
        length = rows // layout.shape[0]
        whole = places.reshape(layout.shape)
        whole[:, -length:] = np.arange(rows).reshape(layout.shape[0], length)
    else:
        raise UnalignedError(f"{rows} rows for {layout.rows} tokens")
    return places


def joined(
    parts: Sequence[torch.Tensor], layout: TokenLayout, features: int | None, sharded: int | None
) -> torch.Tensor:
    """Return one tensor of rows from those of the ranks that share a module.

    Ranks hold rows of their own (sequence parallelism), copies, columns of their own (``sharded`` 0), or parts of a
    sum. ``features`` is how many columns the whole has, None where that is unknown.
    """
    first = parts[0]
    width, ranks = first.shape[1], len(parts)
    if ranks == 1 or (features in (None, width) and sharded is None and _are_all_copies(parts)):
        return first
    if all(len(part) < layout.rows for part in parts) and sum(map(len, parts)) == layout.rows:
        return torch.cat(list(parts))
    if features is None:
        features = width * ranks if sharded == 0 else width
    if width < features:
        copies = max(width * ranks // features, 1)
        return torch.cat(list(parts)[::copies], dim=1)[:, :features]
    if _are_all_copies(parts):
        return first
    return torch.stack([part.double() for part in parts]).sum(dim=0).to(torch.promote_types(first.dtype, torch.float32))


def _are_all_copies(parts: Sequence[torch.Tensor]) -> bool:
    return all(_are_copies(parts[0], part) for part in parts[1:])


def _are_copies(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape:
        return False
    distance = (one.double() - other.double()).norm()
    return bool(distance <= _COPIES * one.double().norm())

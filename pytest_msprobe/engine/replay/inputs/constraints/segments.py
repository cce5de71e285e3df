"""Constraints on drawn numbers that divide data into parts: offsets, lengths, pointers to rows, pivots.

They begin at 0, do not fall and end with the data: kernels read from one to the next without a look at the data's end.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pytest_msprobe.engine.replay.inputs.constraints.drawn import Constraint, DrawnArguments
from pytest_msprobe.engine.replay.inputs.constraints.indices import wrap


def divide_evenly(ends: Tensor, total: int) -> None:
    """Make each row of numbers the ends of nearly equal parts, in place: from 0 on, the last one ``total``."""
    parts = max(ends.shape[-1] - 1, 1)
    ends.copy_((torch.arange(ends.shape[-1]) * total // parts).expand(ends.shape))


def segment_reduce(data_at: int) -> Constraint:
    """Draw the ends of segments anew, some of them empty, from the data at that position; lengths follow from ends."""

    def constraint(drawn: DrawnArguments) -> None:
        data, axis = drawn.tensor(data_at, "data"), drawn.kwargs.get("axis", 0)
        if data is None:
            return
        total = data.shape[axis]
        for name, more in (("offsets", 0), ("lengths", 1)):
            numbers = drawn.kwargs.get(name)
            if isinstance(numbers, Tensor) and numbers.numel():
                shape = (*numbers.shape[:-1], numbers.shape[-1] + more)
                ends = torch.randint(total + 1, shape, generator=drawn.generator).sort(-1).values
                ends[..., -1] = total
                ends[..., 0] = 0
                numbers.copy_(ends.diff(dim=-1) if more else ends)

    return constraint


def embedding_bag_gradient(
    indices: int,
    owners: int,
    rows: int,
    *,
    offsets: int | None = None,
    sizes: int | None = None,
    maxima: int | None = None,
) -> Constraint:
    """Share out the indices among the bags of a gradient: where each bag starts, its size, and the bag of each index.

    The arguments are positions; at ``rows`` is the table of the embedding, or its number of rows.
    """

    def constraint(drawn: DrawnArguments) -> None:
        gradient, places, table = drawn.tensor(0, "grad"), drawn.tensor(indices, "indices"), drawn.get(rows)
        if gradient is None or places is None or not gradient.shape[0]:
            return
        count = table.shape[0] if isinstance(table, Tensor) else table
        if isinstance(count, int):
            wrap(places, count)
            wrap(None if maxima is None else drawn.tensor(maxima, "maximum_indices"), count)
        ends = torch.empty(gradient.shape[0] + 1, dtype=torch.int64)
        divide_evenly(ends, places.numel())
        for position, value in ((offsets, ends[:-1]), (sizes, ends.diff())):
            numbers = None if position is None else drawn.tensor(position)
            if numbers is not None and numbers.numel():
                numbers.copy_(value if numbers.numel() < len(ends) else ends)
        bags = drawn.tensor(owners, "offset2bag")
        if bags is not None and bags.numel():
            bags.copy_(torch.arange(len(ends) - 1).repeat_interleave(ends.diff()))

    return constraint


def jagged(drawn: DrawnArguments) -> None:
    """Make the offsets of jagged values, from the outer to the inner ones, divide what is one level below."""
    values = drawn.tensor(0, "values")
    if values is not None:
        _divide_levels(drawn.get(1, "offsets"), values.shape[0])


def jagged_of_padded(drawn: DrawnArguments) -> None:
    """Make the offsets divide as many rows as the result has, none of the parts longer than the padded data."""
    ends, rows = drawn.get(1, "offsets"), drawn.get(2, "total_L")
    if isinstance(ends, Sequence) and ends:
        _divide_levels(ends, rows if isinstance(rows, int) else int(ends[-1].max()))


def jagged_view(drawn: DrawnArguments) -> None:
    """Make the offsets of a jagged view divide its ragged dimension, and no part longer than to the next offset."""
    values, ends, lengths = drawn.tensor(0, "self"), drawn.tensor(1, "offsets"), drawn.tensor(3, "lengths")
    ragged = drawn.get(4, "ragged_idx")
    if values is None or ends is None:
        return
    divide_evenly(ends, values.shape[(1 if ragged is None else ragged) - 1])
    if lengths is not None:
        lengths.copy_(lengths.abs().minimum(ends.diff()))


def _divide_levels(levels: object, rows: int) -> None:
    if isinstance(levels, Sequence):
        for level, inner in zip(levels, [*levels[1:], None], strict=True):
            divide_evenly(level, rows if inner is None else inner.shape[-1] - 1)


def cumulative_lengths(query_at: int, ends_at: int, dim: int) -> Constraint:
    """Split the tokens of query and key, which follow each other as do their cumulative lengths, from 0 on."""

    def constraint(drawn: DrawnArguments) -> None:
        for more in (0, 1):
            tokens, ends = drawn.tensor(query_at + more), drawn.tensor(ends_at + more)
            if tokens is not None and ends is not None and ends.numel():
                divide_evenly(ends, tokens.shape[dim])

    return constraint


def grouped_products(offsets_at: int) -> Constraint:
    """Make the ends of groups divide the dimension that the groups share, in sixteens where it is made of them.

    That is the one of the result's rows, of its columns, or the one that is summed over, by which of the matrices
    is a batch.
    """

    def constraint(drawn: DrawnArguments) -> None:
        left, right = drawn.tensor(0, "input", "self", "mat_a"), drawn.tensor(1, "mat2", "mat_b")
        ends = drawn.tensor(offsets_at, "offs")
        if left is None or right is None or ends is None or not ends.numel():
            return
        total = left.shape[-2] if right.dim() == 3 else right.shape[-1] if left.dim() == 3 else left.shape[-1]
        unit = 1 if total % 16 else 16
        ends.copy_((torch.arange(ends.numel()) + 1) * (total // unit) // ends.numel() * unit)

    return constraint


def compressed_sparse(pointers_at: int, places_at: int) -> Constraint:
    """Share out the values of a sparse matrix among its compressed rows; within a row, places rise."""

    def constraint(drawn: DrawnArguments) -> None:
        pointers = drawn.tensor(pointers_at, "crow_indices", "ccol_indices", "compressed_indices")
        places = drawn.tensor(places_at, "col_indices", "row_indices", "plain_indices")
        if pointers is None or places is None or not pointers.numel():
            return
        stored = places.shape[-1]
        divide_evenly(pointers, stored)
        if places.numel():
            ends = pointers.reshape(-1, pointers.shape[-1])[0].long()
            sizes = ends.diff()
            within = torch.arange(stored) - ends[:-1].repeat_interleave(sizes)
            columns = int(places.max()) + 1
            places.copy_((within * columns // sizes.repeat_interleave(sizes)).expand(places.shape))

    return constraint


def coordinates(indices_at: int, size_at: int) -> Constraint:
    """Map the coordinates of a sparse tensor into its size."""

    def constraint(drawn: DrawnArguments) -> None:
        places, sizes = drawn.tensor(indices_at, "indices"), drawn.get(size_at, "size")
        if places is not None and isinstance(sizes, Sequence):
            for row, size in zip(places, sizes, strict=False):
                wrap(row, size)

    return constraint


def sorted_rows(drawn: DrawnArguments) -> None:
    """Sort the rows of a sparse matrix, of which pointers are made."""
    rows = drawn.tensor(0, "input", "self")
    if rows is not None:
        rows.copy_(rows.sort().values)


def pivots(drawn: DrawnArguments) -> None:
    """Make step k of a factorization exchange its row with one from the k-th on, counted from 1 as LAPACK does."""
    tensors = [value for value in (*drawn.args, *drawn.kwargs.values()) if isinstance(value, Tensor)]
    for exchanged in tensors:
        size = exchanged.shape[-1] if exchanged.dim() else 0
        if exchanged.dtype in (torch.int32, torch.int64) and size:
            # Of a factor with more columns than rows there are as many pivots as rows.
            rows = max((each.shape[-2] for each in tensors if each.dim() > exchanged.dim()), default=size)
            step = torch.arange(size)
            exchanged.copy_(step + exchanged.abs() % (max(rows, size) - step) + 1)


def padded_lengths(drawn: DrawnArguments) -> None:
    """Make the lengths of padded sequences fall, from the whole length to 1 at least."""
    padded, lengths = drawn.tensor(0, "input"), drawn.tensor(1, "lengths")
    if padded is None or lengths is None or not lengths.numel():
        return
    whole = padded.shape[1 if drawn.get(2, "batch_first") else 0]
    lengths.copy_(lengths.clamp(1, whole).sort(descending=True).values)


def batch_sizes(data_at: int, sizes_at: int) -> Constraint:
    """Make the batch sizes of packed data fall from the drawn greatest one, and add up to the rows of the data."""

    def constraint(drawn: DrawnArguments) -> None:
        data, sizes = drawn.tensor(data_at), drawn.tensor(sizes_at, "batch_sizes")
        if data is not None and sizes is not None and sizes.numel():
            fall_and_add_up(sizes, int(sizes.max()), data.shape[0])

    return constraint


def fall_and_add_up(sizes: Tensor, batch: int, rows: int) -> None:
    """Make the batch sizes of steps fall from ``batch`` to 1 at least, in place, and add up to ``rows``."""
    left = rows - sizes.numel()
    for step in range(sizes.numel()):
        more = max(min(batch - 1, left), 0)
        sizes[step] = 1 + more
        left -= more

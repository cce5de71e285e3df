"""Strides of a tensor: the layout of its elements in memory."""

from __future__ import annotations

from torch import Tensor


def strides(tensor: Tensor, *, is_ordered: bool) -> list[tuple[int, int]]:
    """Return pairs of stride and size from the outermost in; dimensions that lie one in the other are one.

    Where the order of elements makes no difference, they are those of the tensor with its dimensions by their strides.
    """
    if tensor.is_contiguous():
        return [(1, tensor.numel())]
    merged: list[tuple[int, int]] = []
    pairs = [(stride, size) for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size != 1]
    for stride, size in pairs if is_ordered else sorted(pairs, reverse=True):
        if merged and merged[-1][0] == stride * size:
            merged[-1] = (stride, merged[-1][1] * size)
        else:
            merged.append((stride, size))
    return merged


def is_dense(tensor: Tensor) -> bool:
    """Return whether a tensor's elements lie side by side, in whatever order."""
    if tensor.is_contiguous():
        return True
    pairs = strides(tensor, is_ordered=False)
    return len(pairs) == 1 and pairs[0][0] == 1


def is_expanded(tensor: Tensor) -> bool:
    """Return whether dimensions of a tensor repeat its elements, as those of ``expand`` do."""
    if tensor.is_contiguous() or 0 not in tensor.stride():
        return False
    return any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))


def without_repeats(tensor: Tensor) -> Tensor:
    """Return a view of an expanded tensor in which the dimensions that repeat its elements have size 1."""
    once = tuple(slice(1) if stride == 0 else slice(None) for stride in tensor.stride())
    return tensor[once]

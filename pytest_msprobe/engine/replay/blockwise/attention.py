"""Attention, cut along the batch or the heads, each of which attends by itself."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_msprobe.engine.replay.blockwise.cut import Cut
from pytest_msprobe.engine.replay.blockwise.given import Given, tensor_in


def heads(given: Given) -> Iterator[Cut]:
    """Cut (..., L, E) along a dimension before the last two that query, key and value share.

    A mask is cut with them where it has that dimension.
    """
    found = [tensor_in(given, name) for name in ("query", "key", "value")]
    operands = [each for each in found if each is not None]
    if len(operands) < 3 or len({tensor.dim() for _, tensor in operands}) > 1:
        return
    query, value, mask = operands[0][1], operands[2][1], tensor_in(given, "attn_mask")
    shape = (*query.shape[:-1], value.shape[-1])
    for dim in range(len(shape) - 2):
        if len({tensor.shape[dim] for _, tensor in operands}) > 1:
            continue
        inputs = {path: dim for path, _ in operands}
        if mask is not None:
            of_mask = mask[1].dim() - (len(shape) - dim)
            if of_mask >= 0 and mask[1].shape[of_mask] == shape[dim]:
                inputs[mask[0]] = of_mask
        yield Cut(shape, dim, inputs)

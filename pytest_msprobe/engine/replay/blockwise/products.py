"""Products of matrices, cut by rows of one factor, columns of the other, or the batch."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytest_msprobe.engine.replay.blockwise.cut import Cut
from pytest_msprobe.engine.replay.blockwise.given import Given, Rule, tensor_in, tensors_in


def linear(given: Given) -> Iterator[Cut]:
    """Cut a linear layer by rows of its input, or by rows of its weight and its bias with them."""
    left, right, bias = (tensor_in(given, name) for name in ("input", "weight", "bias"))
    if left is None or right is None or right[1].dim() != 2 or left[1].dim() < 2:
        return
    if left[1].shape[-1] != right[1].shape[1]:
        return
    shape = (*left[1].shape[:-1], right[1].shape[0])
    for dim in range(len(shape) - 1):
        yield Cut(shape, dim, {left[0]: dim})
    yield Cut(shape, len(shape) - 1, {right[0]: 0} | ({} if bias is None else {bias[0]: 0}))


def product(left: str, right: str, added: str = "") -> Rule:
    """Return the rule of a matrix product: cut by rows of the left factor, columns of the right one, or the batch."""

    def cuts(given: Given) -> Iterator[Cut]:
        ours, theirs, more = (tensor_in(given, name) for name in (left, right, added))
        if ours is None or theirs is None or min(ours[1].dim(), theirs[1].dim()) < 2:
            return
        a, b = ours[1], theirs[1]
        if a.shape[-1] != b.shape[-2] or (b.dim() != 2 and a.shape[:-2] != b.shape[:-2]):
            return
        shape = (*a.shape[:-1], b.shape[-1])
        batch = len(shape) - 2 if b.dim() != 2 else 0
        for dim in range(len(shape)):
            inputs = {} if dim == len(shape) - 1 else {ours[0]: dim}
            if dim < batch or dim == len(shape) - 1:
                inputs[theirs[0]] = min(dim, b.dim() - 1)
            if more is not None:
                behind = len(shape) - dim
                if more[1].dim() >= behind and more[1].shape[-behind] == shape[dim]:
                    inputs[more[0]] = more[1].dim() - behind
            yield Cut(shape, dim, inputs)

    return cuts


def einsum(given: Given) -> Iterator[Cut]:
    """Cut an einsum along any letter of its result."""
    found = re.fullmatch(r"([a-zA-Z]+(?:,[a-zA-Z]+)*)(?:->([a-zA-Z]*))?", str(given["equation"][1]).replace(" ", ""))
    if found is None:
        return
    operands, result = found[1].split(","), found[2]
    letters = "".join(operands)
    result = "".join(sorted(each for each in letters if letters.count(each) == 1)) if result is None else result
    tensors = tensors_in(given)
    # A letter that an operand has twice is a diagonal.
    if len(tensors) != len(operands) or any(len({*each}) != len(each) for each in (*operands, result)):
        return
    sizes: dict[str, int] = {}
    for words, (_, tensor) in zip(operands, tensors, strict=True):
        if len(words) != tensor.dim():
            return
        if any(sizes.setdefault(each, size) != size for each, size in zip(words, tensor.shape, strict=True)):
            return
    if not {*result} <= sizes.keys():
        return
    shape = tuple(sizes[each] for each in result)
    for dim, each in enumerate(result):
        of = zip(operands, tensors, strict=True)
        yield Cut(shape, dim, {path: words.index(each) for words, (path, _) in of if each in words})

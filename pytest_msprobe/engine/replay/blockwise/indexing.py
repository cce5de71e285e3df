"""What is read between brackets by whole numbers and slices, cut along dimensions that are taken as they are."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_msprobe.engine.replay.blockwise.cut import Cut
from pytest_msprobe.engine.replay.blockwise.given import Given, tensor_in


def basic_index(given: Given) -> Iterator[Cut]:
    """Cut a basic indexing, which reads no index from a tensor or a list, along each dimension that is all read."""
    found, index = tensor_in(given, "input"), given.get("index", ("", []))[1]
    if found is None:
        return
    path, tensor = found
    items = list(index) if isinstance(index, tuple) else [index]
    if any(type(item) not in (int, slice, type(None), type(Ellipsis)) for item in items):
        return
    left = tensor.dim() - sum(type(item) in (int, slice) for item in items)
    if left < 0 or items.count(Ellipsis) > 1:
        return
    at = items.index(Ellipsis) if Ellipsis in items else len(items)
    items[at : at + 1] = [slice(None)] * left
    sizes = iter(enumerate(tensor.shape))
    shape: list[int] = []
    whole: list[tuple[int, int]] = []
    for item in items:
        if item is None:
            shape.append(1)
            continue
        dim, size = next(sizes)
        if item == slice(None):
            whole.append((len(shape), dim))
        if isinstance(item, slice):
            shape.append(len(range(*item.indices(size))))
    for of_result, of_input in whole:
        yield Cut(tuple(shape), of_result, {path: of_input})

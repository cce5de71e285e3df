"""Places of tensors in memory, as far as they are known, and of their views."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from msprobe_hooks.dump.memory_layouts import contiguous_stride


class Known(msgspec.Struct, frozen=True):
    """A tensor whose strides are known.

    Attributes:
        shape: Its shape.
        stride: Its strides; those of dimensions of one element mean nothing.
        offset: Where it begins in its storage; None where that is unknown.
        size: The size of its storage; None where that is unknown.
        storage: The number of its storage, 0 where that is unknown.
        is_conj: Whether memory holds the conjugates of its elements.
        is_neg: Whether memory holds its elements with the other sign.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int | None = None
    size: int | None = None
    storage: int = 0
    is_conj: bool = False
    is_neg: bool = False

    @property
    def is_contiguous(self) -> bool:
        """Return whether its elements lie one after the other in their order."""
        return self.has_strides(contiguous_stride(self.shape))

    def has_strides(self, stride: Sequence[int]) -> bool:
        """Return whether these are its strides, as far as they mean anything."""
        return all(size == 1 or own == step for size, own, step in zip(self.shape, self.stride, stride, strict=True))

    def lies_as(self, other: Known) -> bool:
        """Return whether another one has the same place, whichever its storage is."""
        is_alike = (self.shape, self.offset, self.size) == (other.shape, other.offset, other.size)
        is_read_alike = (self.is_conj, self.is_neg) == (other.is_conj, other.is_neg)
        return is_alike and is_read_alike and self.has_strides(other.stride)


class NotAViewError(Exception):
    """The arguments of a call do not make the view that its name says."""


def fresh(shape: Sequence[int], storage: int) -> Known:
    """Return a contiguous tensor that has a storage of its own."""
    return Known(tuple(shape), contiguous_stride(shape), 0, math.prod(shape), storage)


def strided(shape: Sequence[int], stride: Sequence[int]) -> Known:
    """Return a tensor of which nothing but its strides is known."""
    return Known(tuple(shape), tuple(stride))


def without_place(x: Known) -> Known:
    """Return it without where it lies in which storage."""
    return strided(x.shape, x.stride)


def _moved(x: Known, shape: Sequence[int], stride: Sequence[int], by: int = 0) -> Known:
    offset = None if x.offset is None else x.offset + by
    return msgspec.structs.replace(x, shape=tuple(shape), stride=tuple(stride), offset=offset)


def place_of(dim: object, dims: int) -> int:
    """Return a dimension counted from the first. Raises NotAViewError where there is none."""
    if type(dim) is not int or not -dims <= dim < dims:
        raise NotAViewError
    return dim % dims


def permuted(x: Known, order: Sequence[object]) -> Known:
    """Return it with its dimensions in another order."""
    places = [place_of(dim, len(x.shape)) for dim in order]
    if sorted(places) != list(range(len(x.shape))):
        raise NotAViewError
    return _moved(x, [x.shape[place] for place in places], [x.stride[place] for place in places])


def transposed(x: Known, first: object, second: object) -> Known:
    """Return it with two dimensions exchanged."""
    if not x.shape:
        return x
    order = list(range(len(x.shape)))
    a, b = place_of(first, len(order)), place_of(second, len(order))
    order[a], order[b] = order[b], order[a]
    return permuted(x, order)


def flipped(x: Known, *, conj: bool = False, neg: bool = False) -> Known:
    """Return it with these of its lazy bits flipped."""
    return msgspec.structs.replace(x, is_conj=x.is_conj != conj, is_neg=x.is_neg != neg)


def imaginary(x: Known) -> Known:
    """Return the imaginary parts of complex elements, in a storage of twice as many real ones."""
    offset = None if x.offset is None else 2 * x.offset + 1
    size, stride = None if x.size is None else 2 * x.size, tuple(2 * step for step in x.stride)
    is_neg = x.is_neg != x.is_conj
    return msgspec.structs.replace(x, stride=stride, offset=offset, size=size, is_conj=False, is_neg=is_neg)


def with_moved_dims(x: Known, source: Sequence[object], destination: Sequence[object]) -> Known:
    """Return it with dimensions moved to other places, as ``movedim`` does."""
    dims = len(x.shape)
    sources = [place_of(dim, dims) for dim in source]
    targets = [place_of(dim, dims) for dim in destination]
    if len(sources) != len(targets) or len({*sources}) != len(sources) or len({*targets}) != len(targets):
        raise NotAViewError
    order = dict(zip(targets, sources, strict=True))
    others = iter([dim for dim in range(dims) if dim not in sources])
    return permuted(x, [order[place] if place in order else next(others) for place in range(dims)])


def expanded(x: Known, sizes: Sequence[object]) -> Known:
    """Return it with dimensions of one element repeated."""
    new = len(sizes) - len(x.shape)
    if new < 0:
        raise NotAViewError
    shape, stride = list[int](), list[int]()
    for place, size in enumerate(sizes):
        own, step = (x.shape[place - new], x.stride[place - new]) if place >= new else (1, 0)
        if type(size) is not int or (size == -1 and place < new) or (size != -1 and own not in (1, size)):
            raise NotAViewError
        shape.append(own if size == -1 else size)
        stride.append(step if shape[-1] == own else 0)
    return _moved(x, shape, stride)


def narrowed(x: Known, dim: object, start: object, length: object, step: int = 1) -> Known:
    """Return a range of one dimension."""
    place = place_of(dim, len(x.shape))
    if type(start) is not int or type(length) is not int:
        raise NotAViewError
    start = start + x.shape[place] if start < 0 else start
    if start < 0 or length < 0 or (length and start + (length - 1) * step >= x.shape[place]):
        raise NotAViewError
    shape, stride = list(x.shape), list(x.stride)
    shape[place], stride[place] = length, stride[place] * step
    return _moved(x, shape, stride, start * x.stride[place])


def selected(x: Known, dim: object, index: object) -> Known:
    """Return what is at one place of a dimension."""
    place = place_of(dim, len(x.shape))
    at = place_of(index, x.shape[place])
    return _moved(x, _without(x.shape, place), _without(x.stride, place), at * x.stride[place])


def _without(values: tuple[int, ...], place: int) -> tuple[int, ...]:
    return values[:place] + values[place + 1 :]


def unsqueezed(x: Known, dim: object) -> Known:
    """Return it with one more dimension, of one element."""
    place = place_of(dim, len(x.shape) + 1)
    step = x.shape[place] * x.stride[place] if place < len(x.shape) else 1
    return _moved(x, (*x.shape[:place], 1, *x.shape[place:]), (*x.stride[:place], step, *x.stride[place:]))


def squeezed(x: Known, dims: Sequence[object] | None) -> Known:
    """Return it without dimensions of one element, of these or of all."""
    places = range(len(x.shape)) if dims is None else [place_of(dim, len(x.shape)) for dim in dims]
    dims_left = [place for place in range(len(x.shape)) if place not in places or x.shape[place] != 1]
    return _moved(x, [x.shape[place] for place in dims_left], [x.stride[place] for place in dims_left])


def viewed(x: Known, sizes: Sequence[object]) -> Known | None:
    """Return it in another shape on the same memory, None where a copy is needed for that."""
    shape = _resolved(sizes, math.prod(x.shape))
    stride = _viewed_stride(x, shape)
    return None if stride is None else _moved(x, shape, stride)


def _resolved(sizes: Sequence[object], count: int) -> tuple[int, ...]:
    """Return a shape of so many elements in which one size may be left to be found out."""
    whole = [size for size in sizes if type(size) is int]
    if len(whole) != len(sizes) or whole.count(-1) > 1 or count == 0 or 0 in whole or min(whole, default=1) < -1:
        raise NotAViewError
    product = math.prod(size for size in whole if size != -1)
    if count % product or (-1 not in whole and product != count):
        raise NotAViewError
    return tuple(count // product if size == -1 else size for size in whole)


def _viewed_stride(x: Known, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    # The dimensions of either shape that lie one in the other are gone through together, the innermost first.
    if not x.shape:
        return (1,) * len(shape)
    stride = [0] * len(shape)
    place, base = len(shape) - 1, x.stride[-1]
    own = theirs = 1
    for dim in reversed(range(len(x.shape))):
        own *= x.shape[dim]
        if dim and (x.shape[dim - 1] == 1 or x.stride[dim - 1] == own * base):
            continue
        while place >= 0 and (theirs < own or shape[place] == 1):
            stride[place] = theirs * base
            theirs *= shape[place]
            place -= 1
        if theirs != own:
            return None
        base = x.stride[dim - 1]
        own = theirs = 1
    return tuple(stride) if place == -1 else None


def indexed(x: Known, index: Sequence[object]) -> Known:
    """Return what whole numbers, slices, None and one ellipsis take of it."""
    consumed = sum(type(item) in (int, slice) for item in index)
    if sum(item is ... for item in index) > 1 or consumed > len(x.shape):
        raise NotAViewError
    dim = 0
    for place, item in enumerate(index):
        if item is None:
            x, dim = unsqueezed(x, dim), dim + 1
        elif item is ...:
            dim = len(x.shape) - consumed + sum(type(part) in (int, slice) for part in index[:place])
        elif type(item) is int:
            x = selected(x, dim, item)
        elif type(item) is slice:
            x, dim = _sliced(x, dim, item), dim + 1
        else:
            raise NotAViewError
    return x


def _sliced(x: Known, dim: int, part: slice) -> Known:
    if part.step is not None and part.step < 1:
        raise NotAViewError
    start, stop, step = part.indices(x.shape[dim])
    return narrowed(x, dim, start, max(0, -(-(stop - start) // step)), step)

"""Strides of a tensor: places of its elements in memory, and what fills memory between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import torch

from msprobe_hooks.dump.memory_layouts import span

#: Kernels ask whether an address is a multiple of at most so many bytes.
ALIGNMENT = 64


def kept_offset(offset: int, unit: int) -> int:
    """Return a short offset that is the same modulo a unit, and 0 only where the offset is."""
    return offset if offset <= unit else offset % unit + unit


def is_lazy(tensor: torch.Tensor) -> bool:
    """Return whether memory holds other numbers than a tensor's elements: it has the conjugate or the negative bit."""
    return tensor.is_conj() or tensor.is_neg()


def resolved(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose memory holds its elements: itself, or a copy of one with a lazy bit."""
    return tensor.resolve_conj().resolve_neg()


def flipped(tensor: torch.Tensor, *, conj: bool, neg: bool) -> torch.Tensor:
    """Return a view of the same memory with these of its lazy bits flipped, as far as its dtype has them."""
    tensor = tensor.conj() if conj else tensor
    is_never_negated = tensor.dtype is torch.bool or (tensor.is_floating_point() and tensor.element_size() == 1)
    return torch._neg_view(tensor) if neg and not is_never_negated else tensor


def without_bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return what lies in a tensor's memory, without a graph: a view that has no lazy bit."""
    return flipped(tensor.detach(), conj=tensor.is_conj(), neg=tensor.is_neg())


def with_bits_of(memory: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return a view of memory that has the lazy bits of a tensor."""
    return flipped(memory, conj=tensor.is_conj(), neg=tensor.is_neg())


def has_gaps(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has other elements in between its own, or one element at several places."""
    if tensor.layout is not torch.strided or tensor.is_contiguous():
        return False
    return span(tensor.shape, tensor.stride()) != tensor.numel()


def overlaps(tensor: torch.Tensor) -> bool:
    """Return whether several elements of a tensor may share a place, as those of an expanded one do."""
    if tensor.layout is not torch.strided or not tensor.numel():
        return False
    reach = 0
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and step <= reach:
            return True
        reach += (size - 1) * step
    return False


def memory_size(tensor: torch.Tensor) -> int:
    """Return how many elements of a tensor's dtype its whole storage has room for."""
    return tensor.untyped_storage().nbytes() // tensor.element_size()


def whole_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return the whole storage of a tensor as one line of elements, without a graph."""
    return without_bits(tensor).as_strided((memory_size(tensor),), (1,), 0)


def places_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return where the elements of a tensor lie in its storage, as a flat tensor of places."""
    places = torch.arange(memory_size(tensor)).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    return places.reshape(-1)


def outside(tensors: Iterable[torch.Tensor], size: int) -> torch.Tensor:
    """Return where in a storage of so many elements none of the tensors' elements lie, as a flat tensor of bools."""
    others = torch.ones(size, dtype=torch.bool)
    for tensor in tensors:
        others[places_of(tensor)] = False
    return others


def around(tensor: torch.Tensor, get: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Return the elements of memory that lie in between those of a tensor, as ``get`` brings memory to the CPU."""
    shape, stride = tensor.shape, tensor.stride()
    reach = span(shape, stride)
    others = torch.ones(reach, dtype=torch.bool)
    others[torch.arange(reach).as_strided(shape, stride).reshape(-1)] = False
    return get(without_bits(tensor).as_strided((reach,), (1,)))[others]


def as_laid_out(copy: Callable[[torch.Tensor], torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    """Return what ``copy`` makes of a tensor, with its own strides and lazy bits where a plain copy would lose them."""
    if is_lazy(tensor):
        return with_bits_of(as_laid_out(copy, without_bits(tensor)), tensor)
    if not has_gaps(tensor):
        return copy(tensor)
    memory = tensor.detach().as_strided((span(tensor.shape, tensor.stride()),), (1,))
    return copy(memory).as_strided(tensor.shape, tensor.stride())


def lay_out(values: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    """Return the values in new memory with these strides; the gaps are zero.

    Where strides let several elements share a place, the last one stays there.
    """
    reach = span(values.shape, stride)
    memory = torch.zeros(reach * values.element_size(), dtype=torch.uint8).view(values.dtype)
    laid_out = memory.as_strided(values.shape, stride)
    write_in_order(laid_out, values)
    return laid_out


def write_in_order(place: torch.Tensor, values: torch.Tensor) -> None:
    """Write values to a place, one after the other, whose elements may share memory."""
    values = resolved(with_bits_of(values, place))
    # Bytes can be put anywhere, which cannot be said of every dtype.
    size = place.element_size()
    memory = whole_memory(place).view(torch.uint8).view(-1, size)
    memory[places_of(place)] = values.contiguous().view(-1).view(torch.uint8).view(-1, size)


# Of larger tensors a part says well enough how large its elements are.
_LOOKED_AT = 4096


def filling(values: torch.Tensor, size: int) -> torch.Tensor:
    """Return so many finite elements that differ from the values, of either sign, in their dtype.

    Of whole numbers they are among the values: those may be indices, and a device that reads others may read anywhere.
    """
    dtype = values.dtype
    pattern = _floats(values) if dtype.is_floating_point or dtype.is_complex else _whole_numbers(values)
    # Torch fills few of the dtypes of 8 bits.
    repeated = pattern.to(dtype).repeat(size // len(pattern) + 1)
    return repeated[:size].clone()


def _floats(values: torch.Tensor) -> torch.Tensor:
    dtype = values.dtype
    some = values.reshape(-1)[:_LOOKED_AT]
    some = (torch.view_as_real(some) if dtype.is_complex else some).double().abs()
    greatest = float(some[some.isfinite()].max()) if bool(some.isfinite().any()) else 1.0
    most = float(torch.finfo(dtype).max)
    # No three steps that a tensor may take over its gaps see one sign alone.
    size = min(2 * greatest + 1.3, most / 4) if math.isfinite(greatest) else 1.3
    return torch.tensor([size, -size, -1.5 * size], dtype=torch.float64)


def _whole_numbers(values: torch.Tensor) -> torch.Tensor:
    some = values.reshape(-1)[:_LOOKED_AT]
    if values.dtype is torch.bool:
        return torch.tensor([True, False, False])
    low, high = (int(some.min()), int(some.max())) if some.numel() else (0, 0)
    return torch.tensor([high, low, low + (high - low) // 2] if low != high else [high // 2])

"""Codec of tensors and results: bytes with their form, and back; received bytes are checked and not trusted."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from msprobe_hooks.dump.memory_layouts import span
from msprobe_standards.tensor_layouts import as_array, is_plain
from pytest_msprobe.engine.values.dtypes import dtype_named
from pytest_msprobe.engine.values.strides import ALIGNMENT, flipped, kept_offset, memory_size, without_bits
from pytest_msprobe.extensions.remote.messages import (
    AtArgument,
    AtTensor,
    Complex,
    Dtype,
    Fixed,
    Items,
    Members,
    Node,
    Size,
    TensorForm,
)
from pytest_msprobe.results.outcomes import Skip, SkipReason


class FormError(ValueError):
    """Bytes are not what they are said to be."""


def packed(tensor: torch.Tensor) -> tuple[TensorForm, memoryview]:
    """Return a CPU tensor's form and its memory, gaps between its elements and a little around them included.

    Raises Skip for a tensor that is more than a block of elements.
    """
    if not is_plain(tensor):
        raise Skip(SkipReason.UNSUPPORTED, f"a result of layout {tensor.layout} does not cross to another machine")
    plain = without_bits(tensor)
    reach, before = span(plain.shape, plain.stride()), int(plain.storage_offset())
    unit = ALIGNMENT // plain.element_size()
    front = kept_offset(before, unit) if reach else 0
    bits = tensor.is_conj(), tensor.is_neg()
    form = TensorForm(str(plain.dtype), tuple(plain.shape), tuple(plain.stride()), tensor.requires_grad, front, *bits)
    if not reach:
        return form, torch.empty(0, dtype=torch.uint8).numpy().data
    behind = min(memory_size(plain) - before - reach, unit)
    memory = plain.as_strided((front + reach + behind,), (1,), before - front)
    return form, as_array(memory.view(torch.uint8)).data


def unpacked(form: TensorForm, blob: bytearray, most: float = math.inf) -> torch.Tensor:
    """Return the tensor that bytes are, on their memory.

    Its elements, of which several may share a place, must not take more than ``most`` bytes. Raises FormError for
    bytes that are not the form's, Skip for a dtype that this torch lacks.
    """
    dtype = dtype_named(form.dtype)
    sizes = (*form.shape, *form.stride)
    possible = len(form.shape) == len(form.stride) and all(0 <= size < 2**63 for size in (*sizes, form.offset))
    if not possible or not _holds(form, dtype, len(blob)):
        raise FormError(f"{len(blob)} bytes as {form.dtype} {form.shape} with strides {form.stride}")
    if math.prod(form.shape) * dtype.itemsize > most:
        raise FormError(f"a tensor of shape {form.shape}, larger than is possible")
    if not blob:
        return torch.empty_strided(form.shape, form.stride, dtype=dtype).requires_grad_(form.requires_grad)
    memory = torch.frombuffer(blob, dtype=torch.uint8)
    # A byte of a bool is 0 or 1, or what reads it may do anything.
    values = memory != 0 if dtype is torch.bool else memory.view(dtype)
    differentiable = dtype.is_floating_point or dtype.is_complex
    tensor = flipped(values.as_strided(form.shape, form.stride, form.offset), conj=form.is_conj, neg=form.is_neg)
    return tensor.requires_grad_(form.requires_grad and differentiable)


def _holds(form: TensorForm, dtype: torch.dtype, size: int) -> bool:
    """Return whether so many bytes are those that `packed` gives a tensor of this form."""
    reach, unit = span(form.shape, form.stride), ALIGNMENT // dtype.itemsize
    if not reach:
        return size == 0
    behind, rest = divmod(size - (form.offset + reach) * dtype.itemsize, dtype.itemsize)
    return rest == 0 and 0 <= behind <= unit and form.offset == kept_offset(form.offset, unit)


def without_gaps(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose memory is its own elements alone, once each."""
    if not is_plain(tensor) or span(tensor.shape, tensor.stride()) == tensor.numel():
        return tensor
    plain = tensor.detach().clone(memory_format=torch.contiguous_format)
    return plain.requires_grad_(tensor.requires_grad)


def digest(tensors: Mapping[str, tuple[TensorForm, memoryview]]) -> bytes:
    """Return a digest of packed tensors by path."""
    whole = hashlib.blake2b(digest_size=16)
    for path, (form, blob) in tensors.items():
        bits = form.is_conj, form.is_neg
        whole.update(f"{path} {form.dtype} {form.shape} {form.stride} {form.offset} {bits}".encode())
        whole.update(blob)
    return whole.digest()


def as_node(tree: Any, at: Callable[[torch.Tensor], AtTensor | AtArgument]) -> Node:
    """Return an output as data; ``at`` says where each of its tensors is.

    Raises Skip for a value that has no such form.
    """
    if tree is None or type(tree) in (bool, int, float, str):
        return tree  # type: ignore[no-any-return]
    if isinstance(tree, torch.Tensor):
        return at(tree)
    if isinstance(tree, torch.Size):
        return Size(list(tree))
    if isinstance(tree, list):
        return Items([as_node(item, at) for item in tree])
    if isinstance(tree, tuple):
        return Fixed([as_node(item, at) for item in tree])
    if isinstance(tree, dict) and all(isinstance(key, str) for key in tree):
        return Members({key: as_node(item, at) for key, item in tree.items()})
    if isinstance(tree, complex):
        return Complex(tree.real, tree.imag)
    if isinstance(tree, torch.dtype):
        return Dtype(str(tree))
    raise Skip(SkipReason.UNSUPPORTED, f"a result of type {type(tree).__name__} does not cross to another machine")


def from_node(node: Node, tensors: list[torch.Tensor], arguments: Mapping[str, torch.Tensor]) -> Any:
    """Return the output that data describes. Raises FormError where it names what is not there."""
    match node:
        case AtTensor(number):
            if not 0 <= number < len(tensors):
                raise FormError(f"tensor {number} of {len(tensors)}")
            return tensors[number]
        case AtArgument(path):
            if path not in arguments:
                raise FormError(f"the argument {path!r:.80}")
            return arguments[path]
        case Items(items):
            return [from_node(item, tensors, arguments) for item in items]
        case Fixed(items):
            return tuple(from_node(item, tensors, arguments) for item in items)
        case Members(members):
            return {key: from_node(item, tensors, arguments) for key, item in members.items()}
        case Size(sizes):
            return torch.Size(sizes)
        case Complex(real, imag):
            return complex(real, imag)
        case Dtype(name):
            return dtype_named(name)
    return node

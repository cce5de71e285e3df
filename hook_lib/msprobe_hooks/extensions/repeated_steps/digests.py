"""Digests of tensors, computed where the tensors are: the sum of the bytes as 64-bit words, modulo 2**64.

The last word is filled up with zeros. Two tensors that differ in their bits have equal digests only if the differences
of all words cancel. A permutation of whole words is such a case; it shows in what is computed next.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from msprobe_hooks.torch.statistics import is_readable, local_part

_WORD = 8


def digest(tensor: Tensor) -> Tensor | None:
    """Return a tensor's digest, int64 of no dimension on its device; None where there are no values to read.

    The caller has turned gradients and overrides off.
    """
    tensor = local_part(tensor)
    if not is_readable(tensor):
        return None
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    if not tensor.is_contiguous():
        tensor = _in_memory_order(tensor)
    flat, size = tensor.view(-1), tensor.element_size()
    if flat.dtype is torch.bool:
        # Copies of a bool make any byte that is not 0 a 1.
        flat = flat.view(torch.uint8)
    if (flat.storage_offset() * size) % _WORD:
        flat = flat.clone()
    rest = (flat.numel() * size) % _WORD // size
    if not rest:
        return flat.view(torch.int64).sum()
    whole = flat.numel() - rest
    last = flat.new_zeros(_WORD // size)
    last[:rest] = flat[whole:]
    last = last.view(torch.int64)[0]
    return flat[:whole].view(torch.int64).sum() + last if whole else last


def whole_words(tensor: Tensor) -> Tensor:
    """Return the 64-bit words of a readable tensor, int64 of one dimension; bytes that fill none are left out."""
    raw = local_part(tensor).resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8)
    return raw[: raw.numel() // _WORD * _WORD].clone().view(torch.int64)


def _in_memory_order(tensor: Tensor) -> Tensor:
    """Return a contiguous tensor of the same elements: where they lie densely, their own memory."""
    strides = tensor.stride()
    dense = tensor.permute(sorted(range(tensor.dim()), key=lambda dim: -strides[dim]))
    return dense if dense.is_contiguous() else tensor.contiguous()


def read(digests: Sequence[Tensor]) -> list[int]:
    """Return digests as numbers; each device is waited for once."""
    numbers = [0] * len(digests)
    places: dict[torch.device, list[int]] = {}
    for place, each in enumerate(digests):
        places.setdefault(each.device, []).append(place)
    for of_device in places.values():
        for place, number in zip(of_device, torch.stack([digests[each] for each in of_device]).tolist(), strict=True):
            numbers[place] = number
    return numbers


def named_digests(tensors: Iterable[tuple[str, Tensor]]) -> dict[str, int]:
    """Return the digests of named tensors; those without values to read are left out."""
    found = [(name, each) for name, tensor in tensors if (each := digest(tensor)) is not None]
    return dict(zip((name for name, _ in found), read([each for _, each in found]), strict=True))


def number_digest(value: Any) -> int | None:
    """Return the digest of a number's bits; None of anything else."""
    if isinstance(value, (bool, int)):
        return int.from_bytes(hashlib.blake2b(str(int(value)).encode(), digest_size=8).digest(), "little", signed=True)
    return int(struct.unpack("<q", struct.pack("<d", value))[0]) if isinstance(value, float) else None


def combined(numbers: Iterable[int]) -> int:
    """Return one digest of several, which depends on their order, as a signed number of 64 bits."""
    packed = b"".join(number.to_bytes(_WORD, "little", signed=True) for number in numbers)
    return int.from_bytes(hashlib.blake2b(packed, digest_size=_WORD).digest(), "little", signed=True)

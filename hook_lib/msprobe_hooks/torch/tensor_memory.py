"""Memory of tensors: as arrays of numpy, its layout, and memory that nothing was written to since it was made.

A buffer of ``torch.empty`` is looked at through views and filled in parts before it is read. Until then its values
differ from run to run and say nothing. A call that computes with it takes it for written, and from then on it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch._C import _to_dlpack
from torch.multiprocessing.reductions import StorageWeakRef

from msprobe_hooks.dump.effects import Effects, effects_of, is_times_zero
from msprobe_hooks.torch.no_dispatch import NoDispatch

_PLAIN = frozenset({Tensor, torch.nn.Parameter})
_MOST = 1000


class _Lent:
    """A tensor as `np.from_dlpack` takes it in every version of numpy."""

    __slots__ = ("_tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def __dlpack__(self, **_: object) -> Any:
        return _to_dlpack(self._tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def as_bytes(tensor: Tensor) -> NDArray[np.uint8]:
    """Return the bytes of a contiguous tensor on the host, neither conjugated nor negated, to be read and dropped.

    After ``Tensor.numpy()`` torch resizes a tensor's memory no more, and raises where the program does, as FSDP does.
    """
    data: NDArray[Any] = np.from_dlpack(_Lent(tensor.detach().reshape(-1).view(torch.uint8)))
    return data


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


class UndefinedMemory:
    """The storages of one recording that nothing has read and that were not written to as a whole."""

    def __init__(self) -> None:
        self._storages: dict[int, StorageWeakRef] = {}

    def __bool__(self) -> bool:
        return bool(self._storages)

    def add(self, result: Any) -> None:
        """Note what a call returned without having written to it."""
        if len(self._storages) >= _MOST:
            alive = [reference for reference in self._storages.values() if not reference.expired()]  # type: ignore[no-untyped-call]
            self._storages = {reference.cdata: reference for reference in alive}
        with NoDispatch():
            for tensor in filter(_key, _plain([result])):
                storage = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
                self._storages[storage.cdata] = storage

    def passes_on(self, api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Return whether a call that is about to be made passes such memory on; forget what it reads."""
        effects = effects_of(api)
        with NoDispatch():
            carried = effects.carries and any(map(self._is_here, _plain(args[:1])))
            is_unread = carried or is_times_zero(api, kwargs.get("beta"))
            for place, value in [*((str(i), value) for i, value in enumerate(args)), *kwargs.items()]:
                if not (is_unread and place == "0"):
                    self._forget(effects, place, _plain([value]))
        return carried

    def _forget(self, effects: Effects, place: str, tensors: Iterable[Tensor]) -> None:
        is_unread = effects.is_unread(place)
        for tensor in tensors:
            if self._is_here(tensor) and not (is_unread and (effects.undefined or _is_part(tensor))):
                del self._storages[_key(tensor)]

    def _is_here(self, tensor: Tensor) -> bool:
        return _key(tensor) in self._storages


def _plain(values: Iterable[Any]) -> list[Tensor]:
    """Return the tensors among values and lists of them whose memory can be asked for."""
    flat = [part for value in values for part in (value if isinstance(value, (list, tuple)) else (value,))]
    return [
        tensor
        for tensor in flat
        if type(tensor) in _PLAIN and tensor.layout is torch.strided and tensor.device.type != "meta"
    ]


def _key(tensor: Tensor) -> int:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        # What a transformation of functions wraps has no memory of its own.
        return 0


def _is_part(tensor: Tensor) -> bool:
    return tensor.numel() * tensor.element_size() < tensor.untyped_storage().nbytes()

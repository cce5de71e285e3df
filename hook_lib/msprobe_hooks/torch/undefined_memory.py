"""Memory that nothing was written to since it was made: what holds it in a call that does not compute with it.

A buffer of ``torch.empty`` is looked at through views and filled in parts before it is read. Until then its values
differ from run to run and say nothing. A call that computes with it takes it for written, and from then on it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from msprobe_hooks.dump.unread.effects import Effects, effects_of
from msprobe_hooks.torch.no_dispatch import NoDispatch

_PLAIN = frozenset({Tensor, torch.nn.Parameter})
_MOST = 1000


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
            for place, value in [*((str(i), value) for i, value in enumerate(args)), *kwargs.items()]:
                if not (carried and place == "0"):
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

"""What a call of PyTorch would return and write to, found without making it: it is made on tensors without values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from msprobe_hooks.extensions.fix.call_cache import CallCache
from msprobe_hooks.extensions.fix.call_filter import NothingToRaiseError, UnraisedError
from msprobe_hooks.torch.call_mode import LIBRARY_OPERATORS
from msprobe_hooks.torch.no_dispatch import NoDispatch


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of a call, flattened, with None for anything but a tensor; ``written`` are places among its leaves.

    ``returned`` has for a result that is one of the leaves the place of this leaf, None for a result of its own memory.
    """

    dtypes: tuple[torch.dtype | None, ...]
    devices: tuple[torch.device | None, ...]
    returned: tuple[int | None, ...]
    written: frozenset[int]


class Outcomes:
    """Predicts the outcome of calls; those alike, by the forms of their tensors and all other arguments, once."""

    def __init__(self) -> None:
        self._known = CallCache[Outcome]()

    def of(self, func: Any, leaves: Sequence[Any], spec: Any) -> Outcome:
        """Return the outcome of a call with these arguments, flattened.

        Raises UnraisedError where it is not known, or the call moves its arguments' memory and computes nothing.
        """
        is_cast = torch._C._is_any_autocast_enabled()
        # A function whose result depends on autocast gives another dtype under each of its settings.
        setting = torch.get_autocast_dtype(_device_of(leaves).type) if is_cast else None
        key = func, spec, setting, tuple(map(_form, leaves)), _repetitions(leaves)
        return self._known.of(key, lambda: _predicted(func, leaves, spec, is_cast))


def _form(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return leaf.dtype, leaf.device, leaf.shape, leaf.stride()
    # 1, 1.0 and True are equal and give results of different dtypes. A float may be another one at each step.
    return type(leaf), None if type(leaf) is float else leaf


def _repetitions(leaves: Sequence[Any]) -> tuple[int, ...]:
    """Return the first position of each leaf: what a call writes to depends on which of them are one tensor."""
    first: dict[int, int] = {}
    return tuple(first.setdefault(id(leaf), place) for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor))


def _device_of(leaves: Sequence[Any]) -> torch.device:
    """Return where a call computes: numbers on the CPU may go with tensors anywhere."""
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    return next((tensor.device for tensor in tensors if tensor.dim()), tensors[0].device)


def _predicted(func: Any, leaves: Sequence[Any], spec: Any, is_cast: bool) -> Outcome:
    device = _device_of(leaves)
    with _without_values(is_cast):
        stands_for: dict[int, Tensor] = {}
        for leaf in leaves:
            if isinstance(leaf, Tensor) and id(leaf) not in stands_for:
                place = leaf.device if is_cast else "meta"
                stands_for[id(leaf)] = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=place)
        begun = {key: (tensor._version, tensor.shape, tensor.stride()) for key, tensor in stands_for.items()}
        args, kwargs = pytree.tree_unflatten([stands_for.get(id(leaf), leaf) for leaf in leaves], spec)
        try:
            results = pytree.tree_leaves(func(*args, **kwargs))
        except Exception as error:
            raise UnraisedError(_unknown_result(func)) from error
        written = {key for key, tensor in stands_for.items() if tensor._version != begun[key][0]}
        if any((tensor.shape, tensor.stride()) != begun[key][1:] for key, tensor in stands_for.items()):
            raise UnraisedError("it changes the shape or strides of an argument")
        _require_own_memory(results, stands_for, written)
    places = {id(tensor): place for place, tensor in enumerate(pytree.tree_leaves((args, kwargs)))}
    return Outcome(
        tuple(result.dtype if isinstance(result, Tensor) else None for result in results),
        tuple(_placed(result, device) if isinstance(result, Tensor) else None for result in results),
        tuple(places.get(id(result)) if isinstance(result, Tensor) else None for result in results),
        frozenset(place for place, leaf in enumerate(leaves) if id(leaf) in written),
    )


def _unknown_result(func: Any) -> str:
    what = "its result is not known in advance"
    return f"{what} (torch.library.register_fake declares it)" if type(func) in LIBRARY_OPERATORS else what


def _placed(result: Tensor, device: torch.device) -> torch.device:
    return device if result.device.type == "meta" else result.device


def _require_own_memory(results: Sequence[Any], stands_for: dict[int, Tensor], written: set[int]) -> None:
    """Raise UnraisedError where a result is a view of an argument, or one that was not written to itself."""
    memory = {tensor.untyped_storage()._cdata for tensor in stands_for.values()}
    returned = {id(tensor) for key, tensor in stands_for.items() if key in written}
    for result in results:
        if isinstance(result, Tensor) and id(result) not in returned and result.untyped_storage()._cdata in memory:
            raise NothingToRaiseError("it returns its argument's memory and computes nothing")


@contextmanager
def _without_values(is_cast: bool) -> Iterator[None]:
    """Make tensors inside have a form and no values; they take part in autocast where that ``is_cast``."""
    with NoDispatch(), torch.inference_mode(False), torch.no_grad(), _fake_mode() if is_cast else nullcontext():
        yield


@cache
def _fake_mode() -> AbstractContextManager[object]:
    # It takes a second to import, and only autocast needs it: tensors of device meta cost a thirtieth and know none.
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode()

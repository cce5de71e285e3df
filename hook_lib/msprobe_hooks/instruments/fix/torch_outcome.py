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

from msprobe_hooks.instruments.fix.choice import UnraisedError
from msprobe_hooks.instruments.fix.remembered import Remembered
from msprobe_hooks.torch.quiet import Quiet


@dataclass(frozen=True, slots=True)
class Form:
    """What the program gets as a result: a tensor of its own memory, or the leaf of the arguments at ``place``."""

    dtype: torch.dtype
    device: torch.device
    strides: tuple[int, ...]
    place: int | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of a call, flattened, with None for what is no tensor; ``written`` are places among its leaves."""

    forms: tuple[Form | None, ...]
    written: frozenset[int]

    @property
    def dtypes(self) -> list[torch.dtype]:
        """The dtypes of the tensors that the call returns."""
        return [form.dtype for form in self.forms if form is not None]


class Outcomes:
    """Foretells the outcome of calls; those alike, by the forms of their tensors and all other arguments, once."""

    def __init__(self) -> None:
        self._known = Remembered[Outcome]()

    def of(self, func: Any, leaves: Sequence[Any], spec: Any) -> Outcome:
        """Return the outcome of a call with these arguments, flattened.

        Raises UnraisedError where it cannot be told, or the call moves its arguments' memory and computes nothing.
        """
        is_cast = torch._C._is_any_autocast_enabled()
        # A function whose result depends on autocast gives another dtype under each of its settings.
        setting = torch.get_autocast_dtype(_device_of(leaves).type) if is_cast else None
        key = func, spec, setting, tuple(map(_form, leaves)), _repetitions(leaves)
        return self._known.of(key, lambda: _foretold(func, leaves, spec, is_cast))


def _form(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return leaf.dtype, leaf.device, leaf.shape, leaf.stride()
    # 1, 1.0 and True are equal and give results of different dtypes. A float may be another one at each step.
    return type(leaf), None if type(leaf) is float else leaf


def _repetitions(leaves: Sequence[Any]) -> tuple[int, ...]:
    """Return for each leaf where it stands first: what a call writes to depends on which of them are one tensor."""
    first: dict[int, int] = {}
    return tuple(first.setdefault(id(leaf), place) for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor))


def _device_of(leaves: Sequence[Any]) -> torch.device:
    """Return where a call computes: numbers on the CPU may go with tensors anywhere."""
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    return next((tensor.device for tensor in tensors if tensor.dim()), tensors[0].device)


def _foretold(func: Any, leaves: Sequence[Any], spec: Any, is_cast: bool) -> Outcome:
    first: dict[int, int] = {}
    for place, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor):
            first.setdefault(id(leaf), place)
    devices = {leaves[place].device for place in first.values()}
    # On device meta no call takes part in autocast, and no result tells on which of several devices it would be.
    is_faked = is_cast or len(devices) > 1
    device = None if is_faked else devices.pop()
    with _without_values(is_faked):
        stands_for = {key: _like(leaves[place], device and "meta") for key, place in first.items()}
        begun = {key: (tensor._version, tensor.shape, tensor.stride()) for key, tensor in stands_for.items()}
        args, kwargs = pytree.tree_unflatten([stands_for.get(id(leaf), leaf) for leaf in leaves], spec)
        try:
            results = pytree.tree_leaves(func(*args, **kwargs))
        except Exception as error:
            raise UnraisedError("it cannot be told beforehand what it returns") from error
        written = {key for key, tensor in stands_for.items() if tensor._version != begun[key][0]}
        if any((tensor.shape, tensor.stride()) != begun[key][1:] for key, tensor in stands_for.items()):
            raise UnraisedError("it changes the form of an argument")
        _require_own_memory(results, stands_for, written)
    places = {id(tensor): first[key] for key, tensor in stands_for.items()}
    return Outcome(
        tuple(
            Form(result.dtype, _placed(result, device), result.stride(), places.get(id(result)))
            if isinstance(result, Tensor)
            else None
            for result in results
        ),
        frozenset(place for place, leaf in enumerate(leaves) if id(leaf) in written),
    )


def _like(tensor: Tensor, device: str | None) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device or tensor.device)


def _placed(result: Tensor, device: torch.device | None) -> torch.device:
    return result.device if device is None or result.device.type != "meta" else device


def _require_own_memory(results: Sequence[Any], stands_for: dict[int, Tensor], written: set[int]) -> None:
    """Raise UnraisedError where a result is a view of an argument, or one that was not written to itself."""
    memory = {tensor.untyped_storage()._cdata for tensor in stands_for.values()}
    returned = {id(tensor) for key, tensor in stands_for.items() if key in written}
    for result in results:
        if isinstance(result, Tensor) and id(result) not in returned and result.untyped_storage()._cdata in memory:
            raise UnraisedError("it returns its argument's memory and computes nothing")


@contextmanager
def _without_values(is_faked: bool) -> Iterator[None]:
    """Let tensors be made that have a form and no values; where ``is_faked``, on devices and under autocast."""
    with Quiet(), torch.inference_mode(False), torch.no_grad(), _fake_mode() if is_faked else nullcontext():
        yield


@cache
def _fake_mode() -> AbstractContextManager[object]:
    # It takes a second to import, and few calls need it: tensors of device meta cost a thirtieth.
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode()

"""Digests of each operator's results in one pass, taken on the card while the pass is made."""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from msprobe_hooks.dump.effects import UNDEFINED_RESULTS
from msprobe_hooks.torch.call_mode import is_traced
from msprobe_hooks.torch.no_dispatch import NoDispatch
from msprobe_hooks.torch.statistics import is_readable, local_part

_WORD = 8

_COMMUNICATION: Final = ("c10d", "_c10d_functional")

# A choice: of so many calls that differ, what is needed to find the cause is kept; undefined results are none.
MOST_PLACES: Final = 16


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


def _in_memory_order(tensor: Tensor) -> Tensor:
    """Return a contiguous tensor of the same elements: where they lie densely, their own memory."""
    strides = tensor.stride()
    dense = tensor.permute(sorted(range(tensor.dim()), key=lambda dim: -strides[dim]))
    return dense if dense.is_contiguous() else tensor.contiguous()


def read_digests(digests: Sequence[Tensor]) -> list[int]:
    """Return digests as numbers; each device is waited for once."""
    numbers = [0] * len(digests)
    if len(digests) == 1:
        return [int(digests[0])]
    places: dict[torch.device, list[int]] = {}
    for place, value in enumerate(digests):
        places.setdefault(value.device, []).append(place)
    for of_device in places.values():
        for place, number in zip(of_device, torch.stack([digests[i] for i in of_device]).tolist(), strict=True):
            numbers[place] = number
    return numbers


class CallDigests(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within, collects the digests of what operators compute.

    Views compute nothing and memory that nothing was written to has no values: both are left out. Communication is
    counted, because what it brings may be another rank's fault; its tensors may not have arrived yet. After add, sort,
    which has two results, all_reduce and mul::

        operators        [add, sort, mul]
        _values          [d0,  d1, d2,  d3]     digests
        _places          [0,   1,  1,   2]      of which operator each is
        _communications  [2]                    how many operators came before each

    With the ``expected`` digests of another pass, the results of the first calls that have others are kept; with
    ``keeps_all``, those of all calls.
    """

    def __init__(self, expected: Sequence[tuple[int, ...]] = (), *, keeps_all: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        #: The operators in their order.
        self.operators: list[Any] = []
        #: Copies of results by the places of their calls.
        self.kept: dict[int, list[Tensor]] = {}
        self._expected, self._keeps_all = expected, keeps_all
        self._places: list[int] = []
        self._values: list[Tensor] = []
        self._communications: list[int] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Leave Dynamo alone; it is slow to import."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operator and take the digests of its results."""
        result = func(*args, **(kwargs or {}))
        # What is compiled in one pass is not compiled again in the next.
        if is_traced():
            return result
        if is_compared(func):
            place = len(self.operators)
            self.operators.append(func)
            values = result_digests(func, result, args)
            if self._keeps_all or self._is_unexpected(place, values):
                self.kept[place] = kept_results(func, result, args)
            self._values += values
            self._places += [place] * len(values)
        elif func.namespace in _COMMUNICATION:
            self._communications.append(len(self.operators))
        return result

    def _is_unexpected(self, place: int, values: Sequence[Tensor]) -> bool:
        if place >= len(self._expected) or len(self.kept) >= MOST_PLACES:
            return False
        with NoDispatch():
            return tuple(read_digests(values)) != self._expected[place]

    @property
    def communicates(self) -> bool:
        """Return whether anything was sent to another process."""
        return bool(self._communications)

    def communications_before(self, place: int) -> int:
        """Return how many communications began before the operator at a place."""
        return bisect_right(self._communications, place)

    def read(self) -> list[tuple[int, ...]]:
        """Return the digests of each operator's results."""
        numbers_of_calls: list[list[int]] = [[] for _ in self.operators]
        if self._values:
            for place, number in zip(self._places, read_digests(self._values), strict=True):
                numbers_of_calls[place].append(number)
        return [tuple(numbers) for numbers in numbers_of_calls]


def is_compared(func: Any) -> bool:
    """Return whether an operator computes something that is there when it returns."""
    return _written(func) is not None


def compared_results(func: Any, result: Any, args: Sequence[Any]) -> list[Tensor]:
    """Return the tensors that an operator returned, and the arguments that it wrote to as well, if they can be read."""
    written = [args[place] for place in _written(func) or () if place < len(args)]
    values = (result, *written) if written else (result,)
    tensors = (part for value in values for part in ((value,) if isinstance(value, Tensor) else _listed(value)))
    return [tensor for tensor in tensors if is_readable(local_part(tensor))]


def result_digests(func: Any, result: Any, args: Sequence[Any]) -> list[Tensor]:
    """Return the digests of what an operator returned and of the arguments that it wrote to as well."""
    with NoDispatch():
        tensors = compared_results(func, result, args)
        return [value for tensor in tensors if (value := digest(tensor)) is not None]


def kept_results(func: Any, result: Any, args: Sequence[Any]) -> list[Tensor]:
    """Return copies of what an operator returned and of the arguments that it wrote to as well."""
    with NoDispatch():
        return [local_part(tensor).detach().clone() for tensor in compared_results(func, result, args)]


def _listed(value: Any) -> list[Tensor]:
    return [element for element in value if isinstance(element, Tensor)] if isinstance(value, (list, tuple)) else []


@cache
def _written(func: Any) -> tuple[int, ...] | None:
    """Return the places of the arguments that an operator writes to and does not return; None where it is left out."""
    schema = func._schema
    if func.namespace in _COMMUNICATION and func.overloadpacket.__name__ != "wait_tensor":
        return None
    if func.overloadpacket.__name__ in UNDEFINED_RESULTS:
        return None
    if schema.returns and all(
        result.alias_info is not None and not result.alias_info.is_write for result in schema.returns
    ):
        return None
    returned = {name for result in schema.returns if result.alias_info for name in result.alias_info.before_set}
    return tuple(
        place
        for place, argument in enumerate(schema.arguments)
        if argument.alias_info is not None
        and argument.alias_info.is_write
        and not returned & set(argument.alias_info.before_set)
    )


def whole_words(tensor: Tensor) -> Tensor:
    """Return the 64-bit words of a readable tensor, int64 of one dimension; bytes that fill none are left out."""
    raw = local_part(tensor).resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8)
    return raw[: raw.numel() // _WORD * _WORD].clone().view(torch.int64)


def named_digests(tensors: Iterable[tuple[str, Tensor]]) -> dict[str, int]:
    """Return the digests of named tensors; those without values to read are left out."""
    named = [(name, value) for name, tensor in tensors if (value := digest(tensor)) is not None]
    return dict(zip((name for name, _ in named), read_digests([value for _, value in named]), strict=True))


def number_digest(value: Any) -> int | None:
    """Return the digest of a number's bits; None of anything else."""
    if isinstance(value, (bool, int)):
        return int.from_bytes(hashlib.blake2b(str(int(value)).encode(), digest_size=8).digest(), "little", signed=True)
    return int(struct.unpack("<q", struct.pack("<d", value))[0]) if isinstance(value, float) else None


def combined(numbers: Iterable[int]) -> int:
    """Return one digest of several, which depends on their order, as a signed number of 64 bits."""
    packed = b"".join(number.to_bytes(_WORD, "little", signed=True) for number in numbers)
    return int.from_bytes(hashlib.blake2b(packed, digest_size=_WORD).digest(), "little", signed=True)


def first_other_call(one: CallDigests, other: CallDigests) -> int | None:
    """Return the place of the first operator that only one of two passes made; None where they made the same."""
    for place, (a, b) in enumerate(zip(one.operators, other.operators, strict=False)):
        if a is not b:
            return place
    shorter = min(len(one.operators), len(other.operators))
    return None if len(one.operators) == len(other.operators) else shorter

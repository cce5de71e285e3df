"""Digests of each operator's results in one pass, taken on the card while the pass is made."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from msprobe_hooks.dump.effects import UNDEFINED_RESULTS
from msprobe_hooks.extensions.repeated_steps.passes import MOST_PLACES
from msprobe_hooks.torch.call_mode import is_traced
from msprobe_hooks.torch.no_dispatch import NoDispatch
from msprobe_hooks.torch.statistics import is_readable, local_part

_WORD = 8

_COMMUNICATION: Final = ("c10d", "_c10d_functional")

# FSDP: a rank's own shard is copied into memory for those of all, which communication fills afterwards.
_PARTLY_WRITTEN: Final = frozenset({"all_gather_copy_in"})

_OVERWRITING: Final = frozenset({"copy_", "fill_", "zero_"})

_UNWRITTEN: Final = UNDEFINED_RESULTS | _PARTLY_WRITTEN


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


class Arrivals:
    """Digests of what calls read that communication has written, by the places of the calls."""

    def __init__(self) -> None:
        # The memory that communication was the last to write to.
        self._memory: set[int] = set()
        self._places: list[int] = []
        self._values: list[Tensor] = []

    def arrive(self, values: Any) -> None:
        """Note what communication writes to, now or later."""
        self._memory.update(map(_memory, _readable(values)))

    def computed(self, tensors: Iterable[Tensor]) -> None:
        """Note what a call has written to."""
        self._memory.difference_update(map(_memory, tensors))

    def read(self, place: int, tensors: Any) -> None:
        """Take the digests of what the call at a place reads, if it has arrived."""
        if not self._memory:
            return
        with NoDispatch():
            arrived = [tensor for tensor in _readable(tensors) if _memory(tensor) in self._memory]
            values = [value for tensor in arrived if (value := digest(_waited(tensor))) is not None]
        self._values += values
        self._places += [place] * len(values)

    def differ(self, other: Arrivals, place: int) -> bool:
        """Return whether another pass has read anything else, up to the call at a place."""
        with NoDispatch():
            return self._until(place) != other._until(place)

    def _until(self, place: int) -> list[int]:
        return read_digests(self._values[: bisect_right(self._places, place)])


def _readable(values: Any) -> list[Tensor]:
    tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
    return [tensor for tensor in tensors if is_readable(local_part(tensor))]


def _memory(tensor: Tensor) -> int:
    part = local_part(tensor)
    # Of what a functional collective returns, which may not be there yet.
    part = getattr(part, "elem", part)
    return part.untyped_storage().data_ptr()


def _waited(tensor: Tensor) -> Tensor:
    """Return what a call reads that is about to be made, which waits for a functional collective as well."""
    part = local_part(tensor)
    waited: Tensor = part.trigger_wait() if hasattr(part, "trigger_wait") else part
    return waited


def _only_read(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the arguments of an operator without those that it writes to as a whole."""
    written = {(0, "self")} if func.overloadpacket.__name__ in _OVERWRITING else {*(_written(func) or ())}
    places, names = {place for place, _ in written}, {name for _, name in written}
    return (
        *(value for place, value in enumerate(args) if place not in places),
        *(value for name, value in kwargs.items() if name not in names),
    )


class CallDigests(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within, collects the digests of what operators compute.

    Views compute nothing and memory that nothing was written to has no values: both are left out. So is communication,
    whose tensors may not have arrived yet; ``arrivals`` follow what it brings. After add, sort, which has two results,
    and mul::

        operators        [add, sort, mul]
        _values          [d0,  d1, d2,  d3]     digests
        _places          [0,   1,  1,   2]      of which operator each is

    With the ``expected`` digests of another pass, the results of the first calls that have others are kept; with
    ``keeps_all``, those of all calls.
    """

    def __init__(
        self,
        expected: Sequence[tuple[int, ...]] = (),
        *,
        keeps_all: bool = False,
        arrivals: Arrivals | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        #: What calls read of what other processes sent; None where it is not followed.
        self.arrivals = arrivals
        #: Whether anything was sent to another process.
        self.communicates = False
        #: The operators in their order.
        self.operators: list[Any] = []
        #: Copies of results by the places of their calls.
        self.results: dict[int, list[Tensor]] = {}
        self._expected, self._keeps_all = expected, keeps_all
        self._places: list[int] = []
        self._values: list[Tensor] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Leave Dynamo alone; it is slow to import."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operator and take the digests of its results."""
        if is_traced():
            # What is compiled in one pass is not compiled again in the next.
            return func(*args, **(kwargs or {}))
        named = kwargs or {}
        place, is_communication = len(self.operators), func.namespace in _COMMUNICATION
        if self.arrivals is not None and is_compared(func) and not is_communication:
            self.arrivals.read(place, _only_read(func, args, named))
        result = func(*args, **named)
        self.communicates |= is_communication
        if is_compared(func):
            self.operators.append(func)
            values = result_digests(func, result, args, named)
            if self._keeps_all or self._is_unexpected(place, values):
                self.results[place] = kept_results(func, result, args, named)
            self._values += values
            self._places += [place] * len(values)
        if self.arrivals is not None:
            self._follow(func, place, result, args, named)
        return result

    def _follow(self, func: Any, place: int, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        assert self.arrivals is not None
        if func.namespace in _COMMUNICATION:
            self.arrivals.arrive((result, args, kwargs))
            if is_compared(func):
                self.arrivals.read(place, result)
        elif func.overloadpacket.__name__ == "copy_":
            # Where a library ends its communication, as gloo does that of a reduce_scatter.
            self.arrivals.read(place, args[0])
        elif is_compared(func):
            self.arrivals.computed(compared_results(func, result, args, kwargs))
        elif func.overloadpacket.__name__ in UNDEFINED_RESULTS:
            # Memory that something else had before.
            self.arrivals.computed(_readable(result))

    def _is_unexpected(self, place: int, values: Sequence[Tensor]) -> bool:
        if place >= len(self._expected) or len(self.results) >= MOST_PLACES:
            return False
        with NoDispatch():
            return tuple(read_digests(values)) != self._expected[place]

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


def compared_results(func: Any, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """Return the tensors that an operator returned, and the arguments that it wrote to as well, if they can be read."""
    written = written_arguments(func, args, kwargs)
    values = (result, *written) if written else (result,)
    tensors = (part for value in values for part in ((value,) if isinstance(value, Tensor) else _listed(value)))
    return [tensor for tensor in tensors if is_readable(local_part(tensor))]


def written_arguments(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the arguments, tensors or lists of them, that an operator writes to and does not return."""
    return [args[place] if place < len(args) else kwargs.get(name) for place, name in _written(func) or ()]


def result_digests(func: Any, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """Return the digests of what an operator returned and of the arguments that it wrote to as well."""
    with NoDispatch():
        tensors = compared_results(func, result, args, kwargs)
        return [value for tensor in tensors if (value := digest(tensor)) is not None]


def kept_results(func: Any, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """Return copies of what an operator returned and of the arguments that it wrote to as well."""
    with NoDispatch():
        return [local_part(tensor).detach().clone() for tensor in compared_results(func, result, args, kwargs)]


def _listed(value: Any) -> list[Tensor]:
    return [element for element in value if isinstance(element, Tensor)] if isinstance(value, (list, tuple)) else []


@cache
def _written(func: Any) -> tuple[tuple[int, str], ...] | None:
    """Return the arguments that an operator writes to and does not return, by place and name; None: it is left out."""
    schema = func._schema
    if func.namespace in _COMMUNICATION and func.overloadpacket.__name__ != "wait_tensor":
        return None
    if func.overloadpacket.__name__ in _UNWRITTEN:
        return None
    if schema.returns and all(
        result.alias_info is not None and not result.alias_info.is_write for result in schema.returns
    ):
        return None
    returned = {name for result in schema.returns if result.alias_info for name in result.alias_info.before_set}
    return tuple(
        (place, argument.name)
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


def combined(numbers: Iterable[int]) -> int:
    """Return one digest of several, which depends on their order, as a signed number of 64 bits."""
    packed = b"".join(number.to_bytes(_WORD, "little", signed=True) for number in numbers)
    return int.from_bytes(hashlib.blake2b(packed, digest_size=_WORD).digest(), "little", signed=True)

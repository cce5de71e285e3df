"""Digests of each operator's results in one pass, and a call whose passes differ, found again in a third."""

from __future__ import annotations

import hashlib
import struct
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Final

import torch
from torch import Tensor, autograd, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from msprobe_hooks.dump.effects import UNDEFINED_RESULTS
from msprobe_hooks.torch.call_mode import is_traced
from msprobe_hooks.torch.generators import Generators
from msprobe_hooks.torch.no_dispatch import NoDispatch
from msprobe_hooks.torch.statistics import is_readable, local_part

# A choice: how often a call is made again on the same inputs.
REPETITIONS: Final = 10

# Blocks of each size that are freed before a call: one may be taken for another of its needs.
_BLOCKS: Final = 8

# How often a call is tried in memory of known contents: which memory it gets is the allocator's choice.
_ROUNDS: Final = 4

# What adds in an order that is not fixed, and has another kernel where algorithms have to be deterministic
# (torch.use_deterministic_algorithms); of what has none, torch itself says so.
_ANY_ORDER: Final = frozenset(
    """
    index_add index_add_ index_copy index_copy_ index_put index_put_ _index_put_impl_ put put_ scatter_add scatter_add_
    scatter_reduce scatter_reduce_ embedding_dense_backward convolution convolution_backward cudnn_convolution
    cudnn_convolution_transpose _scaled_dot_product_flash_attention_backward
    _scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention_backward
    """.split()
)
_ANY_ORDER_ON_CPU: Final = frozenset({"index_put", "index_put_", "_index_put_impl_"})

_FOREIGN = tuple(str(Path(module.__file__ or "").parent) for module in (torch, sys.modules["msprobe_hooks"]))

_WORD = 8

_COMMUNICATION: Final = ("c10d", "_c10d_functional")


@dataclass(frozen=True, slots=True)
class Origin:
    """Place where a call was made: the module's path, ``file:line`` of the program, and whether backward made it."""

    module: str
    source: str
    is_backward: bool

    def __str__(self) -> str:
        parts = ["backward"] if self.is_backward else []
        parts += [f"in {self.module}"] if self.module else []
        return ", ".join([*parts, self.source]) if self.source else ", ".join(parts)


@dataclass(frozen=True, slots=True)
class DifferingCall:
    """A call with copies of its inputs. ``digests`` are those of its results in the third pass."""

    operator: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    generators: Generators
    origin: Origin

    def run(self) -> tuple[int, ...]:
        """Make the call again, on copies of the same inputs and with the same random numbers; return its digests."""
        result, args = self._run()
        with NoDispatch():
            return tuple(_read(_result_digests(self.operator, result, args)))

    def _run(self) -> tuple[Any, Sequence[Any]]:
        with NoDispatch():
            args, kwargs = _copies((self.args, self.kwargs))
        self.generators.restore()
        # As in the pass, where autograd had its turn before.
        with torch._C._AutoDispatchBelowAutograd():
            return self.operator(*args, **kwargs), args

    def differing_repetitions(self, digests: Sequence[int]) -> int:
        """Return how many of the repetitions give results with other digests than these."""
        return sum(self.run() != tuple(digests) for _ in range(REPETITIONS))

    def undefined_results(self) -> set[int]:
        """Return the places of results with memory that the call does not write to: it holds what was there before."""
        sizes = [each.untyped_storage().nbytes() for each in tree_leaves(self._run()[0]) if isinstance(each, Tensor)]
        device = next((each.device for each in tree_leaves(self.args) if isinstance(each, Tensor)), torch.device("cpu"))
        found: set[int] = set()
        for _ in range(_ROUNDS):
            low, high = (self._words_in_memory_of(byte, sizes, device) for byte in (0, 255))
            pairs = enumerate(zip(low, high, strict=True))
            # No result has these words by itself.
            found |= {place for place, (a, b) in pairs if a.shape == b.shape and bool(((a == 0) & (b == -1)).any())}
        return found

    def _words_in_memory_of(self, byte: int, sizes: Sequence[int], device: torch.device) -> list[Tensor]:
        with NoDispatch():
            # What is freed is what allocators give first to those who ask for as much.
            blocks = [torch.full((size,), byte, dtype=torch.uint8, device=device) for size in [*sizes] * _BLOCKS]
            blocks.clear()
        result, args = self._run()
        with NoDispatch():
            return [_whole_words(each) for each in _compared_results(self.operator, result, args)]

    def is_nondeterministic(self, differing: int) -> bool:
        """Return whether torch documents that a correct card may give other bits each time.

        On a CPU, ``differing`` repetitions show whether it does.
        """
        if torch.are_deterministic_algorithms_enabled():
            return False
        tensors = [each for each in tree_leaves((self.args, self.kwargs)) if isinstance(each, Tensor)]
        on_cpu = all(each.is_cpu for each in tensors)
        if on_cpu:
            return differing > 0 and self.operator.overloadpacket.__name__ in _ANY_ORDER_ON_CPU
        if self.operator.overloadpacket.__name__ in _ANY_ORDER:
            return True
        try:
            with _deterministic():
                self.run()
        except RuntimeError as error:
            return "does not have a deterministic implementation" in str(error)
        return False


@contextmanager
def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


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


def _read(digests: Sequence[Tensor]) -> list[int]:
    """Return digests as numbers; each device is waited for once."""
    numbers = [0] * len(digests)
    places: dict[torch.device, list[int]] = {}
    for place, each in enumerate(digests):
        places.setdefault(each.device, []).append(place)
    for of_device in places.values():
        for place, number in zip(of_device, torch.stack([digests[each] for each in of_device]).tolist(), strict=True):
            numbers[place] = number
    return numbers


class CallDigests(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within, collects the digests of what operators compute.

    Views compute nothing and memory that nothing was written to has no values: both are left out. Communication is
    counted, because what it brings may be another rank's fault; its tensors may not have arrived yet.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        #: The operators in their order.
        self.operators: list[Any] = []
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
        if _is_compared(func):
            place = len(self.operators)
            self.operators.append(func)
            found = _result_digests(func, result, args)
            self._values += found
            self._places += [place] * len(found)
        elif func.namespace in _COMMUNICATION:
            self._communications.append(len(self.operators))
        return result

    def communications_before(self, place: int) -> int:
        """Return how many communications began before the operator at a place."""
        return bisect_right(self._communications, place)

    def read(self) -> list[tuple[int, ...]]:
        """Return the digests of each operator's results."""
        found: list[list[int]] = [[] for _ in self.operators]
        if self._values:
            for place, number in zip(self._places, _read(self._values), strict=True):
                found[place].append(number)
        return [tuple(each) for each in found]


def _is_compared(func: Any) -> bool:
    """Return whether an operator computes something that is there when it returns."""
    return _written(func) is not None


def _compared_results(func: Any, result: Any, args: Sequence[Any]) -> list[Tensor]:
    """Return the tensors that an operator returned, and the arguments that it wrote to as well, if they can be read."""
    written = [args[place] for place in _written(func) or () if place < len(args)]
    values = (result, *written) if written else (result,)
    tensors = (each for value in values for each in ((value,) if isinstance(value, Tensor) else _listed(value)))
    return [each for each in tensors if is_readable(local_part(each))]


def _result_digests(func: Any, result: Any, args: Sequence[Any]) -> list[Tensor]:
    """Return the digests of what an operator returned and of the arguments that it wrote to as well."""
    with NoDispatch():
        tensors = _compared_results(func, result, args)
        return [found for each in tensors if (found := digest(each)) is not None]


def _listed(value: Any) -> list[Tensor]:
    return [each for each in value if isinstance(each, Tensor)] if isinstance(value, (list, tuple)) else []


@cache
def _written(func: Any) -> tuple[int, ...] | None:
    """Return the places of the arguments that an operator writes to and does not return; None where it is left out."""
    schema = func._schema
    if func.namespace in _COMMUNICATION and func.overloadpacket.__name__ != "wait_tensor":
        return None
    if func.overloadpacket.__name__ in UNDEFINED_RESULTS:
        return None
    if schema.returns and all(each.alias_info is not None and not each.alias_info.is_write for each in schema.returns):
        return None
    returned = {name for each in schema.returns if each.alias_info for name in each.alias_info.before_set}
    return tuple(
        place
        for place, each in enumerate(schema.arguments)
        if each.alias_info is not None and each.alias_info.is_write and not returned & set(each.alias_info.before_set)
    )


class CallCapture(CallDigests):  # type: ignore[no-untyped-call]
    """The digests of a pass, and the calls at some places with everything that is needed to make them again."""

    def __init__(self, model: nn.Module, places: Sequence[int]) -> None:
        super().__init__()
        #: The calls at ``places``, as far as the pass has made them.
        self.captured: dict[int, DifferingCall] = {}
        self._wanted = frozenset(places)
        self._names = {id(module): name for name, module in model.named_modules()}
        self._modules: list[str] = []
        # Where the calls of the forward pass were made, by the number of their node in the graph.
        self._origins: dict[int, Origin] = {}

    @contextmanager
    def following(self) -> Iterator[None]:
        """Collect digests inside, and follow which module runs."""
        # A module that raises, as a recomputation that is ended early, leaves by the hook as well.
        handles = [
            nn.modules.module.register_module_forward_pre_hook(self._enter),
            nn.modules.module.register_module_forward_hook(self._leave, always_call=True),
        ]
        try:
            with self:
                yield
        finally:
            for handle in handles:
                handle.remove()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operator, take its digests and note where it was made."""
        # A device's backward pass runs on a thread that no frame of Python has called.
        origin = self._origin(sys._getframe().f_back)
        place = len(self.operators)
        if place not in self._wanted or not _is_compared(func) or is_traced():
            return super().__torch_dispatch__(func, types, args, kwargs)
        with NoDispatch():
            given, named = _copies((args, kwargs or {}))
        generators = Generators(tree_leaves((args, kwargs)))
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self.captured[place] = DifferingCall(func, given, named, generators, origin)
        return result

    def _origin(self, frame: FrameType | None) -> Origin:
        node = torch._C._current_autograd_node()
        if node is not None and not self._modules:
            made = self._origins.get(node._sequence_nr())
            return Origin("", "", is_backward=True) if made is None else replace(made, is_backward=True)
        origin = Origin(self._modules[-1] if self._modules else "", _source(frame), is_backward=False)
        self._origins.setdefault(autograd._get_sequence_nr() - 1, origin)  # type: ignore[attr-defined]
        return origin

    def _enter(self, module: nn.Module, _: Any) -> None:
        self._modules.append(self._names.get(id(module), ""))

    def _leave(self, *_: Any) -> None:
        if self._modules:
            self._modules.pop()


def _copies(values: Any) -> Any:
    return tree_map_only(Tensor, lambda tensor: tensor.detach().clone(), values)


def _source(frame: FrameType | None) -> str:
    """Return the innermost line of the program that is running, as ``file:line``; empty where there is none."""
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_FOREIGN) and not frame.f_code.co_filename.startswith("<"):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _whole_words(tensor: Tensor) -> Tensor:
    """Return the 64-bit words of a readable tensor, int64 of one dimension; bytes that fill none are left out."""
    raw = local_part(tensor).resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8)
    return raw[: raw.numel() // _WORD * _WORD].clone().view(torch.int64)


def named_digests(tensors: Iterable[tuple[str, Tensor]]) -> dict[str, int]:
    """Return the digests of named tensors; those without values to read are left out."""
    found = [(name, each) for name, tensor in tensors if (each := digest(tensor)) is not None]
    return dict(zip((name for name, _ in found), _read([each for _, each in found]), strict=True))


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

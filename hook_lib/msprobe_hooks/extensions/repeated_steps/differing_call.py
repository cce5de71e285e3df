"""A call whose passes differ: found again in a third pass, with its inputs, its module and its source line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeVar

import torch
from torch import Tensor, autograd, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from msprobe_hooks.extensions.repeated_steps.differences import not_kept, other_shape, wrong_elements
from msprobe_hooks.extensions.repeated_steps.digests import (
    CallDigests,
    compared_results,
    is_compared,
    kept_results,
    read_digests,
    result_digests,
    whole_words,
    written_arguments,
)
from msprobe_hooks.extensions.repeated_steps.passes import (
    MOST_PLACES,
    REPETITIONS,
    Located,
    Origin,
    Passes,
    WatchedPass,
)
from msprobe_hooks.torch.call_mode import is_traced
from msprobe_hooks.torch.generators import Generators
from msprobe_hooks.torch.no_dispatch import NoDispatch
from msprobe_hooks.torch.recorder import TorchRecorder
from msprobe_hooks.torch.recording_mode import discarding
from msprobe_hooks.torch.statistics import local_part

Result = TypeVar("Result")

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


@dataclass(frozen=True, slots=True)
class DifferingCall:
    """A call with copies of its inputs, and of its ``results`` in the third pass."""

    operator: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    generators: Generators
    origin: Origin
    results: Sequence[Tensor]
    #: How often `differing_repetitions` makes it.
    repetitions: int = REPETITIONS
    #: What there is to say of one that is nondeterministic.
    advice: str = "torch documents it as nondeterministic, torch.use_deterministic_algorithms(True) avoids it"

    def run(self) -> tuple[int, ...]:
        """Make the call again, on copies of the same inputs and with the same random numbers; return its digests."""
        result, args, kwargs = self._run()
        with NoDispatch():
            return tuple(read_digests(result_digests(self.operator, result, args, kwargs)))

    def _run(self) -> tuple[Any, Sequence[Any], Mapping[str, Any]]:
        with NoDispatch():
            args, kwargs = _copies((self.args, self.kwargs))
        self.generators.restore()
        # As in the pass, where autograd had its turn before.
        with torch._C._AutoDispatchBelowAutograd():
            return self.operator(*args, **kwargs), args, kwargs

    def record(self, recorder: TorchRecorder, results: Sequence[Tensor] | None = None) -> None:
        """Make the call again and have it recorded; with these results in place of its own where they are given.

        What it writes to is recorded as its output where it returns nothing, as the fused step of an optimizer.
        """
        if self.operator.namespace not in ("aten", "npu"):
            return
        with NoDispatch():
            args, kwargs = _copies((self.args, self.kwargs))
        self.generators.restore()
        written = written_arguments(self.operator, args, kwargs)
        name = f"Aten.{self.operator.overloadpacket.__name__}.{self.operator._overloadname}.0.forward"

        def run(*args: Any, **kwargs: Any) -> Any:
            with torch._C._AutoDispatchBelowAutograd():
                result = self.operator(*args, **kwargs)
            with NoDispatch():
                own = compared_results(self.operator, result, args, kwargs)
                for tensor, values in zip(own, results or (), strict=False):
                    local_part(tensor).copy_(values)
            return result

        call = recorder.api_call(name, sys._getframe(1))
        call.begin(args, kwargs, written=written, has_backward=False)
        call.run(discarding(run, recorder), args, kwargs)

    def differing_repetitions(self, digests: Sequence[int]) -> int:
        """Return how many of the repetitions give results with other digests than these."""
        return sum(self.run() != tuple(digests) for _ in range(self.repetitions))

    def in_words(self, wrong: Sequence[Tensor] | None, wrong_digests: Sequence[int], digests: Sequence[int]) -> str:
        """Return what is wrong in other results of the call; what their digests say where they were not kept."""
        if wrong is not None:
            texts = (in_other_bits(one, right) for one, right in zip(wrong, self.results, strict=False))
            return "; ".join(text for text in texts if text)
        return not_kept(wrong_digests, digests, [result.element_size() for result in self.results])

    def undefined_results(self) -> set[int]:
        """Return the places of results with memory that the call does not write to: it holds what was there before."""
        sizes = [leaf.untyped_storage().nbytes() for leaf in tree_leaves(self._run()[0]) if isinstance(leaf, Tensor)]
        device = next((leaf.device for leaf in tree_leaves(self.args) if isinstance(leaf, Tensor)), torch.device("cpu"))
        undefined: set[int] = set()
        for _ in range(_ROUNDS):
            low, high = (self._words_in_memory_of(byte, sizes, device) for byte in (0, 255))
            pairs = enumerate(zip(low, high, strict=True))
            # No result has these words by itself.
            undefined |= {place for place, (a, b) in pairs if a.shape == b.shape and bool(((a == 0) & (b == -1)).any())}
        return undefined

    def _words_in_memory_of(self, byte: int, sizes: Sequence[int], device: torch.device) -> list[Tensor]:
        with NoDispatch():
            # What is freed is what allocators give first to those who ask for as much.
            blocks = [torch.full((size,), byte, dtype=torch.uint8, device=device) for size in [*sizes] * _BLOCKS]
            blocks.clear()
        result, args, kwargs = self._run()
        with NoDispatch():
            return [whole_words(tensor) for tensor in compared_results(self.operator, result, args, kwargs)]

    def is_nondeterministic(self, differing: int) -> bool:
        """Return whether torch documents that a correct card may give other bits each time.

        On a CPU, ``differing`` repetitions show whether it does.
        """
        if torch.are_deterministic_algorithms_enabled():
            return False
        tensors = [leaf for leaf in tree_leaves((self.args, self.kwargs)) if isinstance(leaf, Tensor)]
        on_cpu = all(tensor.is_cpu for tensor in tensors)
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
        if place not in self._wanted or not is_compared(func) or is_traced():
            return super().__torch_dispatch__(func, types, args, kwargs)
        with NoDispatch():
            positional, named = _copies((args, kwargs or {}))
        generators = Generators(tree_leaves((args, kwargs)))
        result = super().__torch_dispatch__(func, types, args, kwargs)
        results = kept_results(func, result, args, kwargs or {})
        self.captured[place] = DifferingCall(func, positional, named, generators, origin, results)
        return result

    def _origin(self, frame: FrameType | None) -> Origin:
        node = torch._C._current_autograd_node()
        if node is not None and not self._modules:
            forward_origin = self._origins.get(node._sequence_nr())
            return (
                Origin("", "", is_backward=True)
                if forward_origin is None
                else replace(forward_origin, is_backward=True)
            )
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


def in_other_bits(wrong: Tensor, right: Tensor) -> str:
    """Return which elements of two tensors of one dtype have other bits; empty where all are equal."""
    if wrong.shape != right.shape:
        return other_shape(tuple(wrong.shape), tuple(right.shape))
    bits = [
        tensor.cpu().contiguous().view(-1).view(torch.uint8).view(-1, tensor.element_size()).numpy()
        for tensor in (wrong, right)
    ]

    def values(place: int) -> tuple[Any, Any]:
        return wrong.reshape(-1)[place].item(), right.reshape(-1)[place].item()

    return wrong_elements(bits[0], bits[1], right.shape, values)


def _source(frame: FrameType | None) -> str:
    """Return the innermost line of the program that is running, as ``file:line``; empty where there is none."""
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_FOREIGN) and not frame.f_code.co_filename.startswith("<"):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def watched_pass(
    function: Callable[[], Result],
    values_of: Callable[[Result], dict[str, int]],
    collector: CallDigests | None,
    random_of: Callable[[], Any],
) -> tuple[WatchedPass, Result]:
    """Make a pass and return it with what the function returned; ``collector`` takes the digests of its calls."""
    with collector.following() if isinstance(collector, CallCapture) else collector or nullcontext():
        result = function()
    values = values_of(result)
    with NoDispatch():
        return WatchedPass(values, collector, [] if collector is None else collector.read(), random_of()), result


def located(passes: Passes, undefined: set[tuple[Any, int]]) -> Located:
    """Return the first call that differs, other than in memory that it has not written to; that is added."""
    first, second, capture = passes.first.collector, passes.second.collector, passes.third.collector
    if first is None or second is None or not isinstance(capture, CallCapture):
        return Located()
    for place, results in [*passes.calls.items()][:MOST_PLACES]:
        call = capture.captured.get(place)
        if call is not None and results:
            undefined.update((call.operator, number) for number in call.undefined_results() & results)
            results = {number for number in results if (call.operator, number) not in undefined}
        if call is None or results:
            one, other = first.arrivals, second.arrivals
            is_received = one is not None and other is not None and one.differ(other, place)
            return Located(place, call, is_received)
    return Located()

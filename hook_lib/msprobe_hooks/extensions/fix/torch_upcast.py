"""One call of PyTorch in another precision, differentiable casts included, and what it would return or write to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from msprobe_hooks.extensions.fix.run_plan import DRAWS
from msprobe_hooks.recording.upcasts import CallCache, NothingToRaiseError, Precision, UnraisedError
from msprobe_hooks.torch.call_mode import LIBRARY_OPERATORS, OWN_FILES
from msprobe_hooks.torch.generators import Generators
from msprobe_hooks.torch.gradients import is_stop
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


OWN_FILES.add(__file__)

_TO_FLOAT32 = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64}
_TO_FLOAT64 = dict.fromkeys((*_TO_FLOAT32, torch.float32), torch.float64) | {
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
_DTYPES: Mapping[Precision, Mapping[torch.dtype, torch.dtype]] = {
    "float32": _TO_FLOAT32,
    "float64": _TO_FLOAT64,
    "cpu": _TO_FLOAT32,
}
_PLAIN = frozenset({Tensor, torch.nn.Parameter})


@dataclass(frozen=True, slots=True)
class Plan:
    """A call that can be raised: its arguments, flattened, and what it would have returned."""

    func: Any
    leaves: Sequence[Any]
    spec: Any
    outcome: Outcome
    writes: bool


@contextmanager
def _unseen() -> Iterator[None]:
    """Keep what is done from the modes of the program, and not from autograd."""
    has_modes = torch._C._len_torch_dispatch_stack()
    with torch._C.DisableTorchFunction(), _disable_current_modes() if has_modes else nullcontext():
        yield


def returns_floats(result: Any) -> bool:
    """Return whether a floating-point or complex tensor is in what a call returned."""
    with _unseen():
        tensors = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]
        return any(tensor.is_floating_point() or tensor.is_complex() for tensor in tensors)


def _restore(kept: Sequence[tuple[Tensor, Tensor]]) -> None:
    with _unseen(), torch.no_grad():
        for tensor, former in kept:
            tensor.copy_(former)


class Raising:
    """Makes calls in a precision, and returns what they would have returned, in its dtype and on its device."""

    def __init__(self, to: Precision) -> None:
        self._dtypes = _DTYPES[to]
        self._device = torch.device("cpu") if to == "cpu" else None
        self._outcomes = Outcomes()

    def plan(self, func: Any, args: Any, kwargs: Any, *, writes: bool = False) -> Plan:
        """Return how to raise a call; with ``writes`` it may change arguments without moving their version counters.

        Raises UnraisedError where it cannot be, or would compute the same.
        """
        leaves, spec = pytree.tree_flatten((args, kwargs))
        with _unseen():
            return Plan(func, leaves, spec, self._outcome(func, leaves, spec, writes=writes), writes)

    def make(self, plan: Plan) -> Any:
        """Make a call in this precision.

        Raises UnraisedError where it draws random numbers, which would be others, or fails so; nothing is changed then.
        """
        generators = Generators(plan.leaves)
        kept: list[tuple[Tensor, Tensor]] = []
        try:
            with _unseen():
                kept = [(one, one.detach().clone()) for one in self._written_as_they_are(plan)]
                raised = self._cast_all(plan.leaves)
            args, kwargs = pytree.tree_unflatten([raised.get(id(leaf), leaf) for leaf in plan.leaves], plan.spec)
            with torch._C._DisableAutocast():
                result = plan.func(*args, **kwargs)
        except Exception as error:
            if is_stop(error):
                raise
            generators.restore()
            _restore(kept)
            raise UnraisedError(f"in the other precision it raises {type(error).__name__}") from error
        if generators.have_moved():
            generators.restore()
            _restore(kept)
            raise UnraisedError(DRAWS)
        try:
            with _unseen():
                return self._given_back(plan, raised, result)
        except Exception as error:
            if isinstance(error, UnraisedError) or plan.writes or plan.outcome.written:
                raise
            # Nothing was written over, so that the call can be made as it is, where another dtype found no memory.
            raise UnraisedError(f"its result cannot be cast back: {type(error).__name__}") from error

    def _outcome(self, func: Any, leaves: Sequence[Any], spec: Any, *, writes: bool) -> Outcome:
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        is_moved = any(self._is_cast(tensor) for tensor in tensors)
        if not tensors or not (is_moved or torch._C._is_any_autocast_enabled()):
            raise NothingToRaiseError("no argument has a lower precision")
        for tensor in tensors:
            if type(tensor) not in _PLAIN:
                raise UnraisedError(f"an argument is of the tensor subclass {type(tensor).__name__}")
            if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
                raise UnraisedError("an argument is sparse, nested or quantized")
        outcome = self._outcomes.of(func, leaves, spec)
        changed = [dtype for dtype in outcome.dtypes if dtype] + [leaves[place].dtype for place in outcome.written]
        if not writes and not any(dtype.is_floating_point or dtype.is_complex for dtype in changed):
            raise NothingToRaiseError("it returns no floating-point or complex tensor")
        # Under autocast a call may compute in a lower precision than any of its arguments has.
        if not is_moved and not any(dtype in self._dtypes for dtype in outcome.dtypes):
            raise NothingToRaiseError("no result has a lower precision")
        return outcome

    def _written_as_they_are(self, plan: Plan) -> list[Tensor]:
        # A call that fails in the other precision is made again: what it has written must not be written twice.
        places = range(len(plan.leaves)) if plan.writes else plan.outcome.written
        leaves = {id(leaf): leaf for leaf in (plan.leaves[place] for place in places) if isinstance(leaf, Tensor)}
        return [leaf for leaf in leaves.values() if not self._is_cast(leaf)]

    def _is_cast(self, tensor: Tensor) -> bool:
        return tensor.dtype in self._dtypes or self._device not in (None, tensor.device)

    def _cast_all(self, leaves: Sequence[Any]) -> dict[int, Tensor]:
        return {
            id(leaf): leaf.to(self._device or leaf.device, self._dtypes.get(leaf.dtype, leaf.dtype))
            for leaf in leaves
            if isinstance(leaf, Tensor) and self._is_cast(leaf)
        }

    def _given_back(self, plan: Plan, raised: dict[int, Tensor], result: Any) -> Any:
        results, spec = pytree.tree_flatten(result)
        outcome = plan.outcome
        if len(results) != len(outcome.dtypes):
            raise UnraisedError("its results differ in number from those predicted")
        originals = {id(leaf): leaf for leaf in plan.leaves if id(leaf) in raised}
        written = {id(plan.leaves[place]) for place in outcome.written}
        for key, original in originals.items():
            if key in written or (plan.writes and self._differs(original, raised[key])):
                original.copy_(raised[key])

        def given_back(leaf: Any, dtype: torch.dtype | None, device: torch.device | None, place: int | None) -> Any:
            # Only what was foretold to be an argument is the program's own: a raised one may come back as a copy of
            # it, as where it is contiguous and the argument is not.
            if place is not None:
                return plan.leaves[place]
            return leaf.to(device, dtype) if isinstance(leaf, Tensor) else leaf

        back = map(given_back, results, outcome.dtypes, outcome.devices, outcome.returned)
        return pytree.tree_unflatten(back, spec)

    def _differs(self, original: Tensor, raised: Tensor) -> bool:
        before = original.detach().to(raised.device, raised.dtype)
        return not torch.allclose(before, raised.detach(), rtol=0, atol=0, equal_nan=True)

"""Digests of what functions and primitives of MindSpore return in one pass, and a call that differs, made again."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

import mindspore
import numpy as np
from mindspore import Tensor, nn
from mindspore.ops import Primitive

from msprobe_hooks.dump.names import is_distributed
from msprobe_hooks.extensions.mindspore.apis import LAYERS, layers
from msprobe_hooks.extensions.mindspore.call_recording import Calls, Primitives, settings_of
from msprobe_hooks.extensions.mindspore.context import Draws, RandomNumbers
from msprobe_hooks.extensions.mindspore.gradients import NO_PASS, MindSporeEngine
from msprobe_hooks.extensions.mindspore.recorder import MindSporeRecorder
from msprobe_hooks.extensions.repeated_steps.differences import not_kept, other_shape, wrong_elements
from msprobe_hooks.extensions.repeated_steps.passes import MOST_PLACES, REPETITIONS, Origin
from msprobe_hooks.recording.array_statistics import Array
from msprobe_hooks.recording.backward import mapped, tensors_in
from msprobe_hooks.recording.session import Observer, observing

#: What the names of compiled functions begin with.
JIT: Final = "Jit."

# How many of a primitive's results are compared: others are memory that is left undefined or kept for the gradient.
_COMPARED: Final = {**LAYERS, "BatchNorm": 1}

_FOREIGN = tuple(str(Path(module.__file__ or "").parent) for module in (mindspore, sys.modules["msprobe_hooks"]))


def digest(tensor: Tensor) -> int:
    """Return the sum of a tensor's bytes as 64-bit words, signed, as of torch's tensors; taken on the host."""
    raw = _array(tensor).tobytes()
    return int(np.frombuffer(raw + bytes(-len(raw) % 8), np.int64).sum())


def _array(tensor: Tensor) -> Array:
    return np.ascontiguousarray(tensor.asnumpy())


@dataclass(frozen=True, slots=True)
class CapturedCall:
    """A call with copies of its inputs, and of its ``results`` in the third pass."""

    name: str
    #: The primitive that is called, None for another function.
    primitive: Primitive | None
    function: Callable[..., Any]
    args: Any
    kwargs: Any
    origin: Origin
    random: RandomNumbers
    draws: Draws
    #: How many random results the pass had taken before.
    drawn: int
    results: Sequence[Array]
    repetitions: int = REPETITIONS
    advice: str = "mindspore.set_deterministic(True), which is off, may avoid it"

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Make the call with these arguments and the same random numbers; return what is compared of its results."""
        self.random.restore()
        repeating = observing([Calls(self.draws.wrap, self.draws.table)])
        with repeating, self.draws.following(drawn=self.drawn), mindspore._no_grad():
            return _compared(self.name, self.function(*args, **kwargs))

    def differing_repetitions(self, digests: Sequence[int]) -> int:
        """Return how many of the repetitions give results with other digests than these."""
        runs = (self.run(*args, **kwargs) for args, kwargs in (self._inputs() for _ in range(self.repetitions)))
        return sum(_digests(result) != tuple(digests) for result in runs)

    def is_nondeterministic(self, differing: int) -> bool:
        """Return whether a correct card may give other bits: repetitions do, and need not be equal."""
        is_free = mindspore.get_context("deterministic") != "ON" and mindspore.get_context("device_target") != "CPU"
        return differing > 0 and is_free

    def in_words(self, wrong: Sequence[Array] | None, wrong_digests: Sequence[int], digests: Sequence[int]) -> str:
        """Return what is wrong in other results of the call; what their digests say where they were not kept."""
        if wrong is not None:
            return "; ".join(filter(None, map(_in_other_bits, wrong, self.results)))
        return not_kept(wrong_digests, digests, [result.itemsize for result in self.results])

    def record(self, recorder: MindSporeRecorder, results: Sequence[Array] | None = None) -> None:
        """Make the call again and have it recorded; with these results in place of its own where they are given."""
        args, kwargs = self._inputs()

        def run(*args: Any, **kwargs: Any) -> Any:
            own = self.run(*args, **kwargs)
            others = iter(results or ())
            return own if results is None else mapped(lambda tensor: _like(next(others), tensor), Tensor, own)

        call = recorder.api_call(f"{self.name}.0.forward", sys._getframe(1))
        made_with = None if self.primitive is None else settings_of(self.primitive)
        call.begin(args, kwargs, has_backward=False, settings=made_with)
        call.run_as_a_whole(run, args, kwargs)

    def _inputs(self) -> Any:
        return self.draws.copies((self.args, self.kwargs))


def _in_other_bits(wrong: Array, right: Array) -> str:
    if wrong.shape != right.shape:
        return other_shape(wrong.shape, right.shape)
    # The numbers of its bfloat16 have no format of their own.
    number = complex if right.dtype.kind == "c" else float
    bits = [np.frombuffer(array.tobytes(), np.uint8).reshape(-1, array.itemsize) for array in (wrong, right)]
    return wrong_elements(
        bits[0], bits[1], right.shape, lambda place: (number(wrong.flat[place]), number(right.flat[place]))
    )


def _like(values: Array, tensor: Tensor) -> Tensor:
    # Of numpy's kinds of bfloat16 MindSpore takes none.
    return Tensor(values.astype(np.float32) if tensor.dtype == mindspore.bfloat16 else values).astype(tensor.dtype)


def _compared(name: str, result: Any) -> Any:
    """Return what is compared of a result."""
    count = _COMPARED.get(name.rpartition(".")[2])
    return result if count is None else result[:count]


def _communicates(function: Any, qualified: str, args: Sequence[Any]) -> bool:
    """Return whether other ranks take part in a call, which one rank cannot repeat alone."""
    return is_distributed(qualified) or any(
        isinstance(getattr(one, "group", None), str) for one in (function, *args[:1])
    )


def _digests(result: Any) -> tuple[int, ...]:
    return tuple(map(digest, tensors_in(result, Tensor)))


def _arrays(result: Any) -> list[Array]:
    return [np.array(_array(tensor)) for tensor in tensors_in(result, Tensor)]


class CellCalls:
    """The digests of what functions and primitives return in a pass, in the order in which they return.

    With the ``expected`` digests of another pass, the results of the first calls that have others are kept; with
    ``keeps_all``, those of all calls. ``captures`` are the numbers of the calls that are captured.
    """

    def __init__(
        self,
        model: nn.Cell,
        draws: Draws,
        expected: Sequence[tuple[int, ...]] = (),
        *,
        keeps_all: bool = False,
        captures: Iterable[int] = (),
    ) -> None:
        #: The names of the calls.
        self.operators: list[str] = []
        #: Copies of results by the places of their calls.
        self.results: dict[int, list[Array]] = {}
        #: The number of each call in the order in which they begin.
        self.numbers: list[int] = []
        #: The captured calls, by their places.
        self.captured: dict[int, CapturedCall] = {}
        self._digests: list[tuple[int, ...]] = []
        self._begun = 0
        self._expected, self._keeps_all, self._captures = expected, keeps_all, frozenset(captures)
        self._model, self._draws = model, draws
        self._names = {id(cell): name for name, cell in model.cells_and_names()}

    def observers(self) -> list[Observer]:
        """Return what has the calls of functions and primitives collected."""
        return [Calls(self.wrap), Calls(self.wrap, layers), Primitives(self.wrap, self._model)]

    def read(self) -> list[tuple[int, ...]]:
        """Return the digests of each call's results."""
        return self._digests

    def wrap(self, function: Callable[..., Any], qualified: str) -> Callable[..., Any]:
        """Return a function that does the same and has the call collected."""

        @functools.wraps(function, updated=())
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._draws.is_busy:
                return function(*args, **kwargs)
            number, self._begun = self._begun, self._begun + 1
            if number not in self._captures or _communicates(function, qualified, args):
                result = function(*args, **kwargs)
                self._end(number, qualified, _compared(qualified, result))
                return result
            captured = self._begin(function, qualified, args, kwargs)
            result = function(*args, **kwargs)
            place = self._end(number, qualified, _compared(qualified, result))
            self.captured[place] = captured(_arrays(_compared(qualified, result)))
            return result

        return call

    def compiled(self, function: Callable[..., Any], run: Callable[..., Any], args: Any, kwargs: Any, _: Any) -> Any:
        """Make a call of a compiled function, which is not captured: it would put the observers back."""
        number, self._begun = self._begun, self._begun + 1
        result = run(*args, **kwargs)
        self._end(number, f"{JIT}{getattr(function, '__name__', type(function).__name__)}", result)
        return result

    def _begin(
        self, function: Callable[..., Any], qualified: str, args: Any, kwargs: Any
    ) -> Callable[[Sequence[Array]], CapturedCall]:
        primitive = next((one for one in (function, *args[:1]) if isinstance(one, Primitive)), None)
        if primitive is not None and primitive is not function:
            function, args = partial(function, primitive), args[1:]
        origin, random = self._origin(sys._getframe(2)), RandomNumbers()
        args, kwargs = self._draws.copies((args, kwargs))
        drawn = self._draws.count

        def captured(results: Sequence[Array]) -> CapturedCall:
            return CapturedCall(
                qualified, primitive, function, args, kwargs, origin, random, self._draws, drawn, results
            )

        return captured

    def _end(self, number: int, qualified: str, result: Any) -> int:
        place, digests = len(self.operators), _digests(result)
        is_expected = place >= len(self._expected) or len(self.results) >= MOST_PLACES
        if self._keeps_all or not (is_expected or digests == self._expected[place]):
            self.results[place] = _arrays(result)
        # One string for all calls of a name.
        self.operators.append(sys.intern(qualified))
        self.numbers.append(number)
        self._digests.append(digests)
        return place

    def _origin(self, frame: FrameType | None) -> Origin:
        module = source = ""
        is_backward = MindSporeEngine().running_pass() != NO_PASS
        while frame is not None:
            code = frame.f_code
            if code.co_name == "construct" and not module:
                module = self._names.get(id(frame.f_locals.get("self")), "")
            if not source and not code.co_filename.startswith((*_FOREIGN, "<")):
                source = f"{code.co_filename}:{frame.f_lineno}"
            frame = frame.f_back
        return Origin(module, source, is_backward)

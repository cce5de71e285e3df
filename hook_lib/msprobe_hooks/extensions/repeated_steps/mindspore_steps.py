"""The forward and backward pass of chosen steps of MindSpore, computed twice and compared bit by bit.

Calls of functions are seen in PyNative mode; what is compiled is compared by its results.
"""

from __future__ import annotations

import functools
import socket
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Literal

import mindspore
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.communication import GlobalComm, get_group_size
from mindspore.ops import Primitive

from msprobe_hooks.dump.names import is_distributed
from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.mindspore.apis import LAYERS, layers
from msprobe_hooks.extensions.mindspore.call_recording import Calls, JitCalls, Primitives, settings_of, unrecorded
from msprobe_hooks.extensions.mindspore.context import Draws, RandomNumbers, is_pynative, process_rank
from msprobe_hooks.extensions.mindspore.gradients import NO_PASS, MindSporeEngine
from msprobe_hooks.extensions.mindspore.recorder import MindSporeRecorder
from msprobe_hooks.extensions.repeated_steps.differences import (
    Difference,
    OnDifference,
    Report,
    not_kept,
    number_digest,
    other_shape,
    save_case,
    wrong_elements,
)
from msprobe_hooks.extensions.repeated_steps.passes import (
    MOST_PLACES,
    REPETITIONS,
    Located,
    Origin,
    Passes,
    Result,
    WatchedPass,
    WatchedSteps,
    explained,
    explained_third,
    received,
    with_values,
)
from msprobe_hooks.recording.array_statistics import Array
from msprobe_hooks.recording.backward import mapped, tensors_in
from msprobe_hooks.recording.config import settings
from msprobe_hooks.recording.session import Observer, observing

if TYPE_CHECKING:
    from msprobe_hooks.extensions.repeated_steps.passes import Schedule

_JIT: Final = "Jit."

# How many of a primitive's results are compared: others are memory that is left undefined or kept for the gradient.
_COMPARED: Final = {**LAYERS, "BatchNorm": 1}

# A kernel on a CPU tries in its first launches, five times each, into how many parts to split its work; with each the
# ends of the parts are rounded in another way. Measured of Log: the last change came with launch 15.
_UNWATCHED_ON_CPU: Final = 30

# More calls than any pass makes.
_NO_PLACE: Final = 2**31 - 1

_FOREIGN = tuple(str(Path(module.__file__ or "").parent) for module in (mindspore, sys.modules["msprobe_hooks"]))


def digest(tensor: Tensor) -> int:
    """Return the sum of a tensor's bytes as 64-bit words, signed, as of torch's tensors; taken on the host."""
    raw = _array(tensor).tobytes()
    return int(np.frombuffer(raw + bytes(-len(raw) % 8), np.int64).sum())


def _array(tensor: Tensor) -> Array:
    return np.ascontiguousarray(tensor.asnumpy())


class CellState:
    """Parameters that are not trained and random generators, as they are when this is made; copies are kept."""

    def __init__(self, cells: Iterable[nn.Cell], random: RandomNumbers) -> None:
        self._random = random
        with mindspore._no_grad():
            self._values = [(buffer, buffer.copy()) for cell in cells for buffer in cell.untrainable_params()]

    def restore(self) -> None:
        """Restore everything, into the same parameters."""
        with mindspore._no_grad():
            for parameter, values in self._values:
                parameter.set_data(values.copy())
        self._random.restore()


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
        self._end(number, f"{_JIT}{getattr(function, '__name__', type(function).__name__)}", result)
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


class MindSporeStepRepeat(WatchedSteps):
    """Runs a training's forward and backward pass in MindSpore."""

    def __init__(
        self,
        model: nn.Cell,
        schedule: Schedule,
        folder: Path,
        *,
        sees_calls: bool,
        keeps_values: bool,
        stateful: Sequence[Any],
        on_difference: OnDifference,
    ) -> None:
        self._model = model
        self._keeps_values = keeps_values
        self._cells = [model, *(one for one in stateful if isinstance(one, nn.Cell))]
        self._random = partial(RandomNumbers, [one for one in stateful if isinstance(one, mindspore.Generator)])
        # The numbers of the calls of the last pass, by their places.
        self._numbers: Sequence[int] = ()
        not_seen = "calls=False" if not sees_calls else "" if is_pynative() else "MindSpore is in graph mode"
        report = Report(
            rank=process_rank(),
            host=socket.gethostname(),
            card=str(mindspore.get_context("device_target")),
            not_seen=not_seen,
            replicas_not_seen="not with MindSpore",
            optimizer_not_seen="not with MindSpore",
        )
        super().__init__(schedule, folder, on_difference, report)

    def _any(self, condition: bool) -> bool:
        return any(holds for (holds,) in _gathered([int(condition)]))

    def _passes(
        self, function: Callable[[], Result], before: dict[str, int], at: Callable[..., Difference]
    ) -> tuple[Callable[..., tuple[WatchedPass, Result]], Callable[[], None]]:
        state = CellState(self._cells, self._random())
        return partial(self._pass, function, Draws()), state.restore

    def _pass(
        self,
        function: Callable[[], Result],
        draws: Draws,
        expected: Sequence[tuple[int, ...]] | None = None,
        *,
        captures: Sequence[int] = (),
    ) -> tuple[WatchedPass, Result]:
        collector = None
        if not self.report.not_seen:
            numbers = [self._numbers[place] for place in captures]
            keeps_all = self._keeps_values and expected is None
            collector = CellCalls(self._model, draws, expected or (), keeps_all=keeps_all, captures=numbers)
        with observing(self._observers(draws, collector)), draws.following():
            result = function()
        report, calls = self.report, [] if collector is None else collector.read()
        report.not_put_back = sorted({*report.not_put_back, *draws.lost})
        if collector is not None:
            self._numbers = collector.numbers
            compiled = (name for name in collector.operators if name.startswith(_JIT))
            report.compiled = sorted({*report.compiled, *compiled})
        return WatchedPass(dict(self._values(result)), collector, calls, self._random()), result

    def _observers(self, draws: Draws, collector: CellCalls | None) -> list[Observer]:
        if not is_pynative():
            # What compiles the pass reads the source of what it calls.
            return []
        observers: list[Observer] = [Calls(draws.wrap, draws.table)]
        observers += [] if collector is None else collector.observers()
        return [*observers, JitCalls(unrecorded if collector is None else collector.compiled, observers)]

    def _explain(self, passes: Passes, at: Callable[..., Difference]) -> None:
        after = self._random()
        place = next(iter(passes.calls), None)
        captured = {} if passes.third.collector is None else passes.third.collector.captured
        position = Located(place, None if place is None else captured.get(place))
        values, part = passes.first.differing(passes.second), _part_of_this_rank(passes, place)
        if values or place is not None or passes.first.random.have_moved():
            save = partial(self._save, at(kind="wrong", reason="", values=[]))
            why = received() if part == "receives" else explained(passes, position, save)
            if part == "unknown" and why.kind == "wrong":
                reason = f"{why.reason}; which rank has computed it is not known, as none differs before the others"
                why = replace(why, kind="not_repeatable", reason=reason)
            reason = with_values(why.reason, values, "result and buffers")
            self._add(at(kind=why.kind, reason=reason, values=values, odd_pass=why.odd_pass, call=why.call))
        elif third := passes.second.differing(passes.third):
            why = explained_third(passes, set())
            self._add(at(kind=why.kind, reason=why.reason, values=third, odd_pass=3, call=why.call))
        after.restore()

    def _save(
        self, place: Difference, call: CapturedCall, wrong: Sequence[Array] | None
    ) -> tuple[str | None, str | None]:
        return save_case(place, call, wrong, self._folder, "", _recorder)

    def _parameters(self) -> dict[str, int]:
        return {one.name: digest(one) for one in self._model.trainable_params()}

    def _values(self, result: Any) -> Iterator[tuple[str, int]]:
        """Yield the digests of what a pass leaves, by name: what it returned, with gradients by their parameters."""
        yield from _named(result, "result", self._model.trainable_params())
        for cell in self._cells:
            yield from ((f"buffer {one.name}", digest(one)) for one in cell.untrainable_params())


def _gathered(numbers: Sequence[int]) -> list[list[int]]:
    """Return these numbers, of 32 bits, of all ranks; each gives as many."""
    if not GlobalComm.INITED or get_group_size() == 1:
        return [list(numbers)]
    with mindspore._no_grad():
        gathered: list[list[int]] = ops.AllGather()(Tensor([numbers], mindspore.int32)).asnumpy().tolist()
    return gathered


def _part_of_this_rank(passes: Passes, place: int | None) -> Literal["computes", "receives", "unknown"]:
    """Return what this rank, which first differs in the call at a place, has to do with a difference.

    What one rank computes wrong reaches the others with communication. Where all make the same calls, it is the one
    that differs before them.
    """
    differs = place is not None or bool(passes.first.differing(passes.second))
    collector = passes.second.collector
    calls = zlib.crc32("\n".join([] if collector is None else collector.operators).encode()) >> 1
    ranks = _gathered([int(differs), _NO_PLACE if place is None else place, calls])
    if sum(differs for differs, *_ in ranks) <= 1:
        return "computes"
    first = min(place for _, place, _ in ranks)
    if len({calls for *_, calls in ranks}) > 1 or [place for _, place, _ in ranks].count(first) > 1:
        return "unknown"
    return "computes" if place == first else "receives"


def _named(value: Any, name: str, trained: Sequence[Tensor]) -> Iterator[tuple[str, int]]:
    if isinstance(value, Tensor):
        yield name, digest(value)
    elif isinstance(value, (list, tuple)):
        shapes = [getattr(item, "shape", None) for item in value]
        are_gradients = bool(value) and shapes == [one.shape for one in trained]
        for place, item in enumerate(value):
            yield from _named(
                item, f"gradient of {trained[place].name}" if are_gradients else f"{name} {place}", trained
            )
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _named(item, f"{name} {key}", trained)
    elif (number := number_digest(value)) is not None:
        yield name, number


def _recorder(folder: Path) -> MindSporeRecorder:
    return MindSporeRecorder(settings(folder, level="L1", task="tensor", extra_info=False))


def require_options(stateful: Sequence[Any], optimizer: Any, data_parallel_group: Any) -> None:
    """Raise ConfigError for what is not compared, or cannot be put back, in a training of MindSpore."""
    for key, value in (("optimizer", optimizer), ("data_parallel_group", data_parallel_group)):
        if value is not None:
            raise ConfigError(key, type(value).__name__, "None with MindSpore, of which this is not compared")
    for candidate in stateful:
        if not isinstance(candidate, (nn.Cell, mindspore.Generator)):
            raise ConfigError("stateful", type(candidate).__name__, "mindspore.Generator, mindspore.nn.Cell")


def unwatched_steps() -> int:
    """Return how many steps at the beginning are not watched: kernels still choose how to compute."""
    return _UNWATCHED_ON_CPU if mindspore.get_context("device_target") == "CPU" else 2

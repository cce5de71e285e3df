"""The forward and backward pass of chosen steps of MindSpore, computed twice and compared bit by bit.

Calls of functions are seen in PyNative mode; what is compiled is compared by its results.
"""

from __future__ import annotations

import socket
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import mindspore
from mindspore import Tensor, nn, ops
from mindspore.communication import GlobalComm, get_group_size

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.mindspore.call_recording import Calls, JitCalls, unrecorded
from msprobe_hooks.extensions.mindspore.context import Draws, RandomNumbers, is_pynative, process_rank
from msprobe_hooks.extensions.mindspore.recorder import MindSporeRecorder
from msprobe_hooks.extensions.repeated_steps.differences import (
    Difference,
    OnDifference,
    Report,
    number_digest,
    save_case,
)
from msprobe_hooks.extensions.repeated_steps.mindspore_calls import JIT, CapturedCall, CellCalls, digest
from msprobe_hooks.extensions.repeated_steps.passes import (
    Located,
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
from msprobe_hooks.recording.config import settings
from msprobe_hooks.recording.session import Observer, observing

if TYPE_CHECKING:
    from msprobe_hooks.extensions.repeated_steps.passes import Schedule

# A kernel on a CPU tries in its first launches, five times each, into how many parts to split its work; with each the
# ends of the parts are rounded in another way. Measured of Log: the last change came with launch 15.
_UNWATCHED_ON_CPU: Final = 30

# More calls than any pass makes.
_NO_PLACE: Final = 2**31 - 1


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
            compiled = (name for name in collector.operators if name.startswith(JIT))
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

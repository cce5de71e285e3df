"""The recorder of task ``overflow_check``, whatever the framework: calls are looked at, few written, all counted."""

from __future__ import annotations

import functools
import logging
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from msprobe_hooks.dump.call_context import outside_frameworks
from msprobe_hooks.dump.names import forward_of, is_communication, is_in_place, split_called
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.writer import as_json, json_number
from msprobe_hooks.extensions.overflow.anomaly import (
    BUILT_IN,
    AnomalyKind,
    Finding,
    NumbersSoFar,
    ValuePath,
    find_scene,
    is_ignored,
    is_judgeable,
    read_record_io,
)
from msprobe_hooks.extensions.overflow.detector import (
    LookingRecorder,
    Observed,
    PostponedElements,
    RecordBuilder,
    Side,
    State,
    Stub,
    inputs_and_outputs,
)
from msprobe_hooks.messages import counted
from msprobe_hooks.recording.backward import Emit, tensors_in
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.elements import TensorEntry
from msprobe_hooks.recording.summary import Count, Summary

_log = logging.getLogger("msprobe_hooks")


@dataclass(frozen=True, slots=True)
class Overflow:
    """A call in which inf or nan arises: its record, what it shows, and where the program made it, innermost first."""

    name: str
    finding: Finding
    inputs: tuple[ValuePath, ...]
    frames: tuple[str, ...]
    folder: Path

    def __str__(self) -> str:
        finding = self.finding
        shown = finding.inputs if finding.scene is AnomalyKind.COMES_IN else finding.outputs
        places = ", ".join(place.path for place in shown)
        origin = next((f", called at {' '.join(frame.removeprefix('File ').split())}" for frame in self.frames), "")
        return f"{self.name}: {finding.scene.words} ({places}){origin}; its tensors are in {self.folder}"


@dataclass(slots=True)
class OverflowSummary(Summary):
    """Counts of one recording, with the records in which inf and nan were looked for, and those in which they arise."""

    looked_at: int = 0
    overflows: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Return whether nothing was recorded, nor looked at."""
        return self.records == 0 and self.looked_at == 0

    def __str__(self) -> str:
        if not self.looked_at:
            # A dataclass with slots is made anew, which a bare super() does not know of.
            return Summary.__str__(self)
        where = f", written into {', '.join(map(str, self.folders))}" if self.folders else ""
        arises = f"inf or nan arises in {', '.join(self.overflows)}{where}"
        result = arises if self.overflows else "no inf or nan arises, so nothing was written"
        looked_at = f"{result}: checked {counted(self.looked_at, 'record')} in {self.seconds:.1f} s"
        return "; ".join([*self.stopped(), looked_at, *self.notes()])


# What waits on a device to be looked at: enough calls for one transfer to cost nothing, few enough bytes to be spared.
_RING_CALLS = 64
_RING_BYTES = 256 * 2**20

_NAN = json_number(math.nan), None

_BEGINNINGS = (AnomalyKind.ARISES, AnomalyKind.COMES_IN, AnomalyKind.NAN_OF_INF)


class OverflowRecorder(LookingRecorder):
    """Looks at what calls give, and writes those in which inf or nan arises, with their tensors.

    Which these are, the rules of ``dump.scenes`` say, by the record as it would be written. On a host each call is
    looked at when it returns. Calls on a device wait in a ring for one reduction over all that they gave; when it is
    full, or something will change unnoticed, all in it are looked at, in their order.

    After ``overflow_nums`` of them the recording has ended. ``on_overflow`` is called with each, and may raise a
    BaseException that reaches the program.
    """

    summary: OverflowSummary

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.summary = OverflowSummary()
        self.overflows: list[Overflow] = []
        self.on_overflow: Callable[[Overflow], None] | None = None
        self._ring: list[Observed] = []
        self._ring_bytes = 0
        # What is known of tensors: witnesses of those that a call has written over, and which were found to hold inf or
        # nan.
        self._overwritten: dict[State, Any] = {}
        self._non_finite: dict[State, TensorEntry | None] = {}
        self._around: set[str] = set()
        self._so_far = NumbersSoFar()
        self._threads = _Thread()

    # what observers ask

    def elements(self, name: str) -> PostponedElements:
        """Return what takes the values of a record in place of its elements' builder."""
        return PostponedElements(
            self.tensors_of,
            self._before_change,
            says_so=_is_in_place(name),
            changes_all=is_communication(name),
        )

    def watch(self, outputs: list[Any], inputs: Any, emit: Emit, where: str) -> None:
        """Call ``emit`` as any recorder does; what it emits belongs to the call that was seen last."""
        forward = self._threads.last
        if forward is not None:
            self._put_stubs(forward)
            emit = functools.partial(self._emit_beside, forward, emit)
        super().watch(outputs, inputs, emit, where)  # type: ignore[safe-super]

    def emit(self, name: str, record: Any, parent: str | None, count: Count, frame: FrameType | None = None) -> None:
        """Take a record, look at what it gives, and write it where inf or nan arises in it."""
        if self.has_found_all or not is_judgeable(name):
            return
        inputs, outputs = inputs_and_outputs(record)
        arrived = self._arrived(inputs, outputs)
        answers = [self.is_finite(tensor) for tensor, _ in arrived]
        is_healthy = all(answers)
        # Only who has a gradient is asked for again.
        is_awaited = frame is not None and self.is_differentiated(outputs)
        thread = self._threads
        observed = None
        if is_awaited or not is_healthy:
            forward = thread.forward
            if forward is not None and forward.name != forward_of(name):
                forward = None
            stack = None if frame is None else self._stacks.stack(frame)
            observed = Observed(name, record, parent, count, forward, stack)
        thread.last = observed if is_awaited else None
        with self.lock:
            self.summary.looked_at += 1
            if _gives_nothing(record) and not self._so_far.are_unknown and self._may_write_non_finite(record):
                self._settle()
                self._so_far.note_unknown()
            if observed is not None and not is_healthy:
                if None in answers:
                    self._take_into_ring(observed, arrived)
                else:
                    self._settle()
                    self._note_non_finite(arrived, answers)
                    self._judge(observed)
            if self._overwritten and not self._ring:
                self._overwritten.clear()

    def forget(self) -> None:
        """Look at all that waits, as it may change unnoticed from here on."""
        self._settle()
        super().forget()  # type: ignore[safe-super]

    def fetch(self) -> None:
        """Look at all that waits."""
        self._settle()
        super().fetch()

    # life

    @property
    def has_found_all(self) -> bool:
        """Return whether as many overflows were found as are wanted."""
        return 0 < self.settings.overflow_nums <= len(self.overflows)

    def start(self, rank: int | None) -> bool:
        """Turn recording on as any recorder does; False as well once all that is wanted was found."""
        return not self.has_found_all and super().start(rank)

    def close_step(self, *, is_last: bool = False) -> None:
        """Finish the files of the step; one in which nothing was found leaves none."""
        with self.net("the end of a step"):
            self._settle()
        files = self._files
        super().close_step(is_last=is_last)
        for records in (self._non_finite, self._around):
            records.clear()
        self._so_far = NumbersSoFar()
        self._threads = _Thread()
        if files is not None and files.is_empty:
            files.remove()
            self.summary.folders.remove(files.folder)

    # parts

    def _emit_beside(self, forward: Observed, emit: Emit, grad_outputs: list[Any], grad_inputs: list[Any]) -> None:
        thread = self._threads
        thread.forward = forward
        try:
            emit(grad_outputs, grad_inputs)
        finally:
            thread.forward = None

    def _emit_backward(
        self, name: str, parent: str | None, grad_outputs: list[Any], grad_inputs: list[Any], count: Count
    ) -> None:
        if not self._are_healthy(grad_outputs, grad_inputs):
            super()._emit_backward(name, parent, grad_outputs, grad_inputs, count)

    def _are_healthy(self, grad_outputs: list[Any], grad_inputs: list[Any]) -> bool:
        """Return by the values alone whether no record of these gradients needs to be made, and count it then."""
        if not self.filter.is_trivial or self.has_found_all:
            return False
        try:
            with self.quiet():
                arrived = self._arrived(self.tensors_of(grad_outputs), self.tensors_of(grad_inputs))
                if not all(self.is_finite(gradient) for gradient, _ in arrived):
                    return False
        except Exception:
            # Who makes the record meets it again, and counts it.
            return False
        with self.lock:
            self.summary.looked_at += 1
        return True

    def _arrived(self, inputs: Sequence[tuple[Any, int]], outputs: Sequence[tuple[Any, int]]) -> list[tuple[Any, int]]:
        """Return what an output holds for the first time: not given to the call, nor a view of what was."""
        versions = {id(tensor): version for tensor, version in inputs}
        return [
            (tensor, version)
            for tensor, version in outputs
            if versions.get(id(tensor)) != version and not self.is_view_of(tensor, inputs)
        ]

    def _may_write_non_finite(self, record: Any) -> bool:
        """Return whether a call that gives nothing, as an assignment does, was given inf or nan."""
        sides = [part for part in record.values() if type(part) is Side]
        numbers = [number for side in sides for number in tensors_in(side.values, float)]
        tensors = [tensor for side in sides for tensor, _ in side.tensors]
        return not (all(map(math.isfinite, numbers)) and all(map(self.is_finite, tensors)))

    def _before_change(self, tensors: list[tuple[Any, int]]) -> None:
        # A value that a call overwrites is gone when the call is checked, also for the call that returned it.
        for (tensor, version), witness in zip(tensors, self.witnesses([one for one, _ in tensors]), strict=True):
            self._overwritten[State(tensor, version)] = witness

    def _stub(self, tensor: Any, version: int) -> Stub:
        return Stub(State(tensor, version), self.looks(tensor))

    def _put_stubs(self, observed: Observed) -> None:
        for side in observed.sides():
            side.put_stubs(self._stub)

    def _take_into_ring(self, observed: Observed, arrived: list[tuple[Any, int]]) -> None:
        self._ring_bytes += sum(self.size(tensor) for tensor, _ in arrived)
        observed.arrived = [self._stub(tensor, version) for tensor, version in arrived]
        self._put_stubs(observed)
        observed.hold(self.alias)
        if observed.forward is not None:
            # What the graph kept of the call is freed before it may be asked for.
            observed.forward.hold(self.alias)
        self._ring.append(observed)
        if len(self._ring) >= _RING_CALLS or self._ring_bytes > _RING_BYTES:
            self._settle()

    def _settle(self) -> None:
        """Look at all that waits on a device, in the order in which it was called."""
        if not self._ring:
            return
        with self.lock, self.quiet():
            ring, self._ring, self._ring_bytes = self._ring, [], 0
            arrived = [stub for observed in ring for stub in observed.arrived]
            wrong = {
                stub.state for stub, number in zip(arrived, self._numbers(arrived), strict=True) if number - number
            }
            self._non_finite.update(dict.fromkeys(wrong))
            for observed in ring:
                if any(stub.state in wrong for stub in observed.arrived):
                    self._judge(observed)
            for observed in ring:
                observed.release()
                if observed.forward is not None:
                    observed.forward.release()
                observed.arrived = ()
            self._overwritten.clear()

    def _numbers(self, stubs: list[Stub]) -> list[float]:
        intact = [stub for stub in stubs if self.version(stub.find()) == stub.state.version]
        witness_of = dict(zip(map(id, intact), self.witnesses([stub.find() for stub in intact]), strict=True))
        # What was overwritten by a call that does not say so is not known.
        return self.numbers([witness_of.get(id(stub), self._overwritten.get(stub.state, 0.0)) for stub in stubs])

    def _note_non_finite(self, arrived: list[tuple[Any, int]], answers: list[bool | None]) -> None:
        for (tensor, version), is_finite in zip(arrived, answers, strict=True):
            if is_finite is False:
                self._non_finite[State(tensor, version)] = None

    def _judge(self, observed: Observed) -> None:
        """Write a record whose output holds inf or nan, where they arise in it, after that of its forward call."""
        calls = [one for one in (observed.forward, observed) if one is not None]
        builders = [RecordBuilder(self, one, with_files=False) for one in calls]
        records = {one.name: builder.record() for one, builder in zip(calls, builders, strict=True)}
        super().fetch()
        for builder in builders:
            self._non_finite.update((state, entry) for state, entry in builder.entries if state in self._non_finite)
        settings = self.settings
        raw = {name: msgspec.Raw(as_json(record)) for name, record in records.items()}
        dump = Dump(settings.dump_path, settings.task, settings.level, self.framework, raw)
        traffic = read_record_io(dump, observed.name)
        finding = find_scene(traffic)
        finding = finding and (self._so_far.beginning(observed.name, finding) or finding)
        if finding is None or finding.scene not in _BEGINNINGS or is_ignored(finding, observed.name, BUILT_IN):
            self._so_far.note(traffic)
            return
        self._so_far.note(traffic, begins=True)
        if observed.parent is not None:
            self._around.add(observed.parent)
        if observed.name in self._around or self.has_found_all:
            return
        for one in calls:
            if not one.is_written:
                one.is_written = True
                record = RecordBuilder(self, one, with_files=True).record()
                self._add(one.name, record, one.parent, one.count, one.stack)
        self._report(observed, finding, traffic.inputs)

    def former(self, state: State) -> tuple[Any, Any]:
        """Return what is known of the greatest and the least value of a tensor that was freed or has changed."""
        entry = self._non_finite.get(state)
        if entry is not None:
            return entry.Max, entry.Min
        witness = self._overwritten.get(state)
        is_wrong = witness is not None and not math.isfinite(*self.numbers([witness]))
        return _NAN if is_wrong or state in self._non_finite else (None, None)

    def _report(self, observed: Observed, finding: Finding, inputs: tuple[ValuePath, ...]) -> None:
        files = self._files
        if files is None:
            return
        maker = observed if observed.stack is not None else observed.forward
        stack = None if maker is None else maker.stack
        frames = () if stack is None else tuple(outside_frameworks(self._stacks.in_words(stack)))
        overflow = Overflow(observed.name, finding, inputs, frames, files.folder)
        self.overflows.append(overflow)
        self.summary.overflows.append(observed.name)
        self._flush(with_stacks=True)
        self._or_fail(files.wait)
        _log.warning("%s", overflow)
        was_recording = self.is_recording
        if self.has_found_all:
            self.is_recording = False
        if self.on_overflow is not None and was_recording:
            self.on_overflow(overflow)


def _gives_nothing(record: Any) -> bool:
    output = record.get("output")
    return type(output) is Side and output.values in (None, (), [])


def _is_in_place(name: str) -> bool:
    called, rest = split_called(name)
    return not rest.endswith("backward") and _says_in_place(called)


_says_in_place = functools.cache(is_in_place)


class _Thread(threading.local):
    """Last observations of a thread, and the call whose gradients it is being given."""

    def __init__(self) -> None:
        self.last: Observed | None = None
        self.forward: Observed | None = None

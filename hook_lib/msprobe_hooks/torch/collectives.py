"""Collective communication, which no mode sees, by interposition in ``torch.distributed``.

A record is written when the communication is over. Its beginning is written at once, in ``communication.jsonl``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from msprobe_hooks.dump.communication.collectives import BARRIERS, NEVER_WAITED_FOR, operation_of
from msprobe_hooks.dump.communication.jsonl import Event, Line
from msprobe_hooks.dump.unread.effects import RECEIVED
from msprobe_hooks.recording.call_records import CallRecord
from msprobe_hooks.recording.interposition import Around
from msprobe_hooks.torch.call_mode import is_traced
from msprobe_hooks.torch.collective_hooks import CollectiveHooks
from msprobe_hooks.torch.elements import TorchElements
from msprobe_hooks.torch.no_dispatch import NoDispatch
from msprobe_hooks.torch.recorder import TorchRecorder

# What newer versions of PyTorch call in place of the functions that msprobe records, and FSDP calls at once.
_RENAMED = frozenset({"all_gather_single", "reduce_scatter_single"})


class Collectives:
    """Records collectives between ``begin`` and ``end``; asynchronous ones when they are waited for."""

    def __init__(self, recorder: TorchRecorder) -> None:
        self._recorder = recorder
        self._hooks: CollectiveHooks[CollectiveCall] = CollectiveHooks(
            self._recording,
            lambda call: call.end(call.given),
            self._note_refused,
            also=BARRIERS | _RENAMED,
            failed=lambda call, error: call.fail(error),
        )

    def begin(self) -> None:
        """Watch the functions and the class whose ``wait`` ends an asynchronous call."""
        self._hooks.begin()

    def end(self) -> None:
        """Stop watching; calls that were never waited for are written without output."""
        for call in self._hooks.end():
            call.end(None, is_complete=False)

    def _note_refused(self, name: str, error: TypeError) -> None:
        self._recorder.summary.note_error(f"Distributed.{name}", error)

    def _recording(self, name: str) -> Around:
        def around(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            recorder = self._recorder
            if not recorder.is_recording or recorder.is_suspended or is_traced():
                return function(*args, **kwargs)
            kind = BarrierCall if name in BARRIERS else CollectiveCall
            call = kind(recorder, operation_of(name) if name in _RENAMED else name, sys._getframe(2))
            call.begin(args, kwargs)
            recorder.is_suspended = True
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                call.fail(error)
                raise
            finally:
                recorder.is_suspended = False
            with recorder.net(call.name):
                if self._hooks.returned(result, call):
                    call.report("launched")
            return result

        return around


class CollectiveCall(CallRecord):
    """The record of one collective in the making. Its output is what its arguments hold afterwards."""

    count = "calls"

    def __init__(self, recorder: TorchRecorder, name: str, frame: FrameType | None) -> None:
        qualified = f"Distributed.{name}"
        super().__init__(recorder, f"{qualified}.{recorder.number(qualified)}.forward", frame)
        self.given: tuple[Any, Any] = ((), {})
        self._measured = recorder.measured
        self._api = name

    def begin(self, args: Any, kwargs: Any) -> None:
        """Take the arguments before the call, and write that it begins."""
        recorder = self._recorder
        self.given = (args, kwargs)
        try:
            if not recorder.directions.forward or not recorder.filter.admits(self.name):
                return
            self._record = {}
            self._elements = recorder.elements(self.name)
            self._take_given(args, kwargs)
            self._report_beginning(args, kwargs)
        except Exception as error:
            self._record = None
            self._note_error_before(error)

    def _take_given(self, args: Any, kwargs: Any) -> None:
        recorder = self._recorder
        assert self._record is not None
        if recorder.settings.task == "structure" or not recorder.directions.input:
            return
        received = RECEIVED.get(self._api, ())
        with NoDispatch():
            self._record["input_args"] = self._elements.sequence(
                [None if str(place) in received else value for place, value in enumerate(args)], "input"
            )
            self._record["input_kwargs"] = self._elements.mapping(
                {key: None if key in received else value for key, value in kwargs.items()}, "kwargs"
            )
        self._record["is_recompute"] = False

    def _report_beginning(self, args: Any, kwargs: Any) -> None:
        kinds = TorchElements(self.name, lambda tensor, entry: None, None)
        with NoDispatch():
            given = kinds.sequence(args, "input"), kinds.mapping(kwargs, "kwargs")
        self._recorder.log_communication(Line("began", self.name, time.time(), *given))

    def report(self, event: Event) -> None:
        """Record what has happened to the call, if it is recorded."""
        if self._record is not None:
            with self._recorder.net(self.name):
                self._recorder.log_communication(Line(event, self.name, time.time()))

    def fail(self, error: BaseException) -> None:
        """Record that the call raised, and write a record that says what."""
        self.report("raised")
        super().fail(error)

    def end(self, given: tuple[Any, Any] | None, *, is_complete: bool = True) -> None:
        """Take the arguments after the call, or note that it was never waited for."""
        recorder = self._recorder
        # Communication writes without moving version counters, into views as well.
        self._measured.forget()
        if self._record is None:
            return
        if is_complete:
            self.report("ended")
        wanted = recorder.directions.output and recorder.settings.task != "structure"
        with recorder.net(self.name):
            if not is_complete:
                self._record["exception"] = NEVER_WAITED_FOR
            elif given is not None and wanted:
                args, kwargs = given
                with NoDispatch():
                    self._record["output"] = self._elements.sequence([*args, *kwargs.values()], "output")
            with NoDispatch():
                self._emit()


class BarrierCall(CollectiveCall):
    """A call in which ranks only wait for each other: a line of ``communication.jsonl``, not a record of a dump."""

    def _take_given(self, args: Any, kwargs: Any) -> None:
        pass

    def _emit(self) -> None:
        pass

"""The recorder: what calls, modules and gradients report becomes records, in order, from all threads."""

from __future__ import annotations

import threading
from functools import partial
from types import FrameType
from typing import Any

from msprobe_hooks.dump.communication.jsonl import Line
from msprobe_hooks.dump.tokens import PassTokens
from msprobe_hooks.recording.backward import BackwardPasses, Inputs, Listener
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.lifecycle import Lifecycle
from msprobe_hooks.recording.safety_net import abandon_in_children
from msprobe_hooks.recording.stacks import Stack
from msprobe_hooks.recording.summary import Count
from msprobe_hooks.recording.tensor_files import TensorFiles


class Recorder(Lifecycle):
    """One recording. Observers ask it for names, hand it records, and never see it raise.

    Calls are observed while it ``is_recording``; the gradients of what was observed are taken until the step's files
    are closed. A failure to observe is counted in the summary with its reason.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.directions = settings.directions
        self._places = _Places()
        self._counts: dict[str, int] = {}
        self._has_stacks = settings.extra_info
        #: What is put together until a backward pass ends.
        self.passes = BackwardPasses(self.engine)
        self.listener = Listener(self.passes.at_end, self.note_repeated, self.note_error)
        abandon_in_children(self)

    # what observers ask

    def number(self, name: str) -> int:
        """Return how many calls of this name there were in this step, and count one more."""
        with self.lock:
            count = self._counts.get(name, 0)
            self._counts[name] = count + 1
        return count

    @property
    def calls(self) -> int:
        """The number of calls of this step so far, of all names."""
        return sum(self._counts.values())

    @property
    def modules(self) -> list[str]:
        """The forward names of the modules that this thread is in, outermost first."""
        return self._places.modules

    @property
    def parent(self) -> str | None:
        """Return what a record of this thread belongs to: the phase it is in, else the innermost module."""
        places = self._places
        return places.phase or (places.modules[-1] if places.modules else None)

    def enter_phase(self, phase: str | None) -> None:
        """Note that this thread is in the optimizer or clips gradients, or with None that it no longer is.

        Fused optimizers change parameters unnoticed, so all is measured anew.
        """
        self._places.phase = phase
        with self.net(phase or "the end of a phase"):
            self.forget()
            with self.lock:
                if phase is not None and self.settings.level == "mix" and self._files is not None:
                    self._files.add_phase(phase)

    @property
    def is_suspended(self) -> bool:
        """Return whether this thread is inside a call that is recorded as a whole."""
        return self._places.is_suspended

    @is_suspended.setter
    def is_suspended(self, value: bool) -> None:
        self._places.is_suspended = value

    def accepts_gradients(self, period: int) -> bool:
        """Return whether gradients of what was observed in a period are recorded, though calls may no longer be."""
        return period == self.period and self._files is not None

    @property
    def tensors(self) -> TensorFiles | None:
        """Return what writes tensors into the step's folder; None where none are written."""
        files = self._files
        return None if files is None else files.tensors

    # what observers hand over

    def emit(self, name: str, record: Any, parent: str | None, count: Count, frame: FrameType | None = None) -> None:
        """Add a record, to be counted as ``count``, with the stack of ``frame`` where one is given."""
        with self.lock:
            stack = self._stacks.stack(frame) if frame is not None and self._has_stacks else None
            self._add(name, record, parent, count, stack)

    def emit_of_lines(self, name: str, record: Any, parent: str | None, count: Count, lines: tuple[str, ...]) -> None:
        """Add a record of what runs without a stack of its own, with lines of the program in place of one."""
        with self.lock:
            stack = self._stacks.stack_of_lines(lines) if lines and self._has_stacks else None
            self._add(name, record, parent, count, stack)

    def log_communication(self, line: Line) -> None:
        """Write at once what happens to a communication, so that it is known of a process that is killed in it."""
        with self.lock:
            files = self._files
            if files is not None:
                self._or_fail(lambda: files.add_line(line))

    def note_tokens(self, tokens: PassTokens) -> None:
        """Write which tokens a forward pass has, where one is recorded."""
        with self.lock:
            files = self._files
            if files is not None and self.is_recording:
                self._or_fail(lambda: files.add_tokens(tokens))

    def watch_backward(self, name: str, parent: str | None, outputs: list[Any], inputs: Inputs, count: Count) -> None:
        """Write the backward record of a call when its gradients come by, and count it as ``count``."""
        if self.directions.backward and outputs:
            # There are as many of these as calls until the backward pass comes, and a closure is several objects.
            self.watch(outputs, inputs, partial(self._take_gradients, self.period, name, parent, count), name)

    def note_traced(self) -> None:
        """Count a call that a tracer or compiler made."""
        self.summary.traced += 1

    def note_repeated(self) -> None:
        """Count a further backward pass through a call that was recorded."""
        if self._files is not None:
            self.summary.repeated += 1

    # steps

    def restart(self) -> None:
        """Begin a step anew: nothing is counted yet, and no gradients are awaited."""
        self._counts.clear()
        self.passes.forget()

    def abandon(self) -> None:
        """Abandon everything in a forked child, gradients included."""
        self.passes.abandon()
        super().abandon()

    # parts

    def _add(self, name: str, record: Any, parent: str | None, count: Count, stack: Stack | None) -> None:
        files = self._files
        if files is not None and files.add(name, record, parent, count, stack, len(self._waiting)):
            self._flush()

    def _take_gradients(
        self,
        period: int,
        name: str,
        parent: str | None,
        count: Count,
        grad_outputs: list[Any],
        grad_inputs: list[Any],
    ) -> None:
        if self.accepts_gradients(period):
            self._emit_backward(name, parent, grad_outputs, grad_inputs, count)
        elif period != self.period:
            self.summary.late += 1

    def _emit_backward(
        self, name: str, parent: str | None, grad_outputs: list[Any], grad_inputs: list[Any], count: Count
    ) -> None:
        if not self.filter.admits(name):
            return
        record: dict[str, Any] = {}
        with self.quiet():
            if self.settings.task != "structure":
                elements = self.elements(name)
                if self.directions.input:
                    record["input"] = elements.sequence(grad_outputs, "input")
                    elements.number_storages(record)
                if self.directions.output:
                    record["output"] = elements.sequence(grad_inputs, "output")
            self.emit(name, record, parent, count)


class _Places(threading.local):
    """Position of each thread."""

    def __init__(self) -> None:
        self.modules: list[str] = []
        self.phase: str | None = None
        self.is_suspended = False

"""The recorder of a live check: what a recording writes into files is kept in memory, and judged at once.

What is judged is in torch's terms, whatever framework the training is made with.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from types import FrameType
from typing import Any, ClassVar

from torch import Tensor

from msprobe_hooks.dump.names import backward_of
from msprobe_hooks.dump.writer import as_json
from msprobe_hooks.recording.backward import Inputs, tensors_in
from msprobe_hooks.recording.call_records import ApiCall
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.elements import Elements, TensorEntry
from msprobe_hooks.recording.recorder import Recorder
from msprobe_hooks.recording.session import Model, Observer
from msprobe_hooks.recording.stacks import code_and_lines
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.calls.side import Run
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.extensions.live_checks.budget import Budget
from pytest_msprobe.extensions.live_checks.judge import Judge, arguments_of
from pytest_msprobe.extensions.live_checks.observed_call import (
    Awaiting,
    Observed,
    Sink,
    WaitingMemory,
    bytes_of,
    copied,
)
from pytest_msprobe.extensions.live_checks.scheduling import Chosen, Selection, Turns


class KeptElements(Elements):
    """The elements of a record whose tensors are kept, by the names that their files would have."""

    __slots__ = ("tensors",)

    def __init__(self, name: str, keep: Callable[[Any], Tensor]) -> None:
        self.tensors: dict[str, Tensor] = {}

        def save(tensor: Any, file: str) -> str:
            self.tensors[file] = keep(tensor)
            return file

        super().__init__(name, _unmeasured, save)

    def keep_no_more(self) -> None:
        """Describe what follows and keep nothing of it."""
        self._save = None


def _unmeasured(_: Any, __: TensorEntry) -> None:
    """Leave the statistics out: what a check needs of a tensor is its elements."""


class LiveRecorder(Recorder):
    """Has calls judged when they end, and their gradients when those have come."""

    kept_class: ClassVar[type[KeptElements]]

    def __init__(
        self,
        settings: Settings,
        judge: Judge,
        sink: Sink,
        selection: Selection,
        budget: Budget,
        react: Callable[[], None],
        waiting: int,
    ) -> None:
        super().__init__(settings)
        #: Called after each check, where the training can be given something.
        self.react = react
        self.judge = judge
        self.sink = sink
        self.selection = selection
        self.budget = budget
        #: Calls whose gradients were to be judged when they come, and those of them whose gradients came.
        self.awaited = self.arrived = 0
        self._waiting_memory = WaitingMemory(waiting)

    # what a framework says

    @classmethod
    def setup(cls, setup: ReplayConfig) -> ReplayConfig:
        """Return what its checks have in common."""
        return setup

    @abstractmethod
    def rank(self) -> int | None:
        """Return this process's rank, None where there is no process group."""

    @abstractmethod
    def observers(self, model: Model | None) -> list[Observer]:
        """Return what sees calls between ``begin`` and ``end``; ``model`` holds what is seen by it alone."""

    @abstractmethod
    def obstacle(self, name: str, args: Any, kwargs: Any) -> str | None:
        """Return why a call with these arguments cannot be judged in the middle of a training, None where it can."""

    @abstractmethod
    def kind(self, name: str, args: Any, kwargs: Any) -> Hashable:
        """Return what calls share that are alike."""

    @abstractmethod
    def copy(self, tensor: Any) -> Tensor:
        """Return a copy of a tensor as torch's on the CPU, that no graph knows of."""

    @abstractmethod
    def before(self, args: Any, kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Return the arguments of a call that is about to be made, with tensors of torch."""

    @abstractmethod
    def after(self, seen: tuple[Any, Any], given: tuple[Any, Any], output: Any, name: str) -> Any:
        """Return the output of the call of that name, with tensors of torch.

        ``seen`` is what ``before`` returned for the arguments that were ``given``; what of it the call has changed is
        changed.
        """

    @abstractmethod
    def gradients(self, found: Sequence[Any]) -> list[Tensor | None]:
        """Return gradients as tensors of torch; None for those that are of no float tensor."""

    # what is the same for all

    def start(self, rank: int | None) -> bool:
        """Look at calls from here on. There are no files that could be in the way."""
        self.is_recording = True
        return True

    def stop(self) -> None:
        """Look at no more calls."""
        self.is_recording = False

    def abandon(self) -> None:
        """Abandon everything in a forked child: the journal, and its lock, belong to the parent."""
        super().abandon()
        self.sink.close()

    def api_call(self, name: str, frame: FrameType | None) -> ApiCall:
        """Return a call that is judged when it has ended."""
        return LiveCall(self, name, frame)

    def elements(self, name: str) -> KeptElements:
        """Return a builder for the elements of a forward record; copies of its tensors are kept."""
        return self.kept_class(name, self.copy)

    def note_traced(self) -> None:
        """Count a call that a tracer or compiler made."""
        self.selection.leave_out("a compiler or tracer of torch makes the call")

    def looks_at(self, name: str) -> bool:
        """Return whether a call may be checked as far as its name and the time say."""
        return self.filter.admits(name) and self.selection.has_time(name, self.step)

    def choose(self, name: str, args: Any, kwargs: Any) -> Chosen | None:
        """Return what is checked of a call, None where it is left out."""
        obstacle = self.obstacle(name, args, kwargs)
        if obstacle is not None:
            self.selection.leave_out(obstacle)
            return None
        return self.selection.choose(self.kind(name, args, kwargs), name, self.step)

    def judge_forward(self, seen: Observed, call: Call, run: Run, turns: Turns) -> None:
        """Judge a call that has ended, given the run that the training made."""
        with self.lock:
            result, replay = self.judge.forward(seen, call, run)
            turns.count(result)
            self.sink.add(result, replay, seen.forward, None, seen.stack)
            self._end_if_full()

    def fits(self, size: int) -> bool:
        """Return whether copies of so many bytes may be kept until gradients come."""
        return self._waiting_memory.fits(size) or self.selection.leave_out(
            "no memory left to wait for gradients (waiting)"
        )

    def await_gradients(self, kept: Awaiting, size: int, outputs: list[Any], inputs: Inputs) -> None:
        """Judge the gradients of a call when they come; ``size`` is what is kept of it in bytes."""
        self._waiting_memory.reserve(kept, size, self.selection.await_gradients(kept.turns))
        self.awaited += 1
        step = self.step

        def on_gradients(grad_outputs: list[Any], grad_inputs: list[Any]) -> None:
            self.arrived += 1
            if not self.is_recording:
                return
            if step != self.step:
                self.selection.leave_out("the gradients came after their step")
                return
            try:
                self._judge_backward(kept, grad_outputs, grad_inputs)
            except Exception as error:
                # Gradients may be such as cannot be copied, those of a vmap; the backward pass is the training's.
                self.note_error(f"gradients of {kept.name.rsplit('.', 2)[0]}", error)
            self.react()

        self.watch(outputs, inputs, on_gradients, backward_of(kept.name))

    def note_repeated(self) -> None:
        """Count a further backward pass through a call; the first was judged."""
        if self.is_recording:
            self.selection.leave_out("further backward pass through the same call")

    def _judge_backward(self, kept: Awaiting, grad_outputs: list[Any], grad_inputs: list[Any]) -> None:
        with self.lock, self.budget.spending(kept.turns):
            name = backward_of(kept.name)
            elements = self.elements(name)
            with self.quiet():
                record: dict[str, Any] = {"input": elements.sequence(grad_outputs, "input")}
                elements.keep_no_more()
                record["output"] = elements.sequence(grad_inputs, "output")
                leaving = self.gradients(grad_inputs)
            backward = as_json(record)
            result, replay = self.judge.backward(kept, backward, elements.tensors, leaving)
            kept.turns.count(result)
            self.sink.add(result, replay, kept.forward, backward, kept.stack)
            self._end_if_full()

    def _end_if_full(self) -> None:
        # To go on would be to lose what is found from now on.
        if self.sink.failure is not None:
            self.is_recording = False


class LiveCall(ApiCall):
    """A call whose inputs are kept as they are before it."""

    __slots__ = ("_chosen", "_given", "_seen", "_versions")

    _recorder: LiveRecorder
    _elements: KeptElements

    def begin(self, args: Any, kwargs: Any, changed: Any = None, written: Any = None, **options: Any) -> None:
        """Keep the arguments as they are before the call, if it is to be checked."""
        recorder = self._recorder
        with recorder.net(self.name):
            if recorder.looks_at(self.name):
                self._begin_if_chosen(args, kwargs, changed, written, options)

    def _begin_if_chosen(self, args: Any, kwargs: Any, changed: Any, written: Any, options: dict[str, Any]) -> None:
        recorder = self._recorder
        with recorder.budget.spending():
            chosen = recorder.choose(self.name, args, kwargs)
            if chosen is not None:
                self._given, self._chosen = (args, kwargs), chosen
                if not chosen.backward:
                    options["has_backward"] = False
                super().begin(args, kwargs, changed, written, **options)

    def fail(self, error: BaseException) -> None:
        """Count a call that raised; there is nothing to judge."""
        if self._record is not None and self._recorder.is_failure(error):
            self._recorder.selection.leave_out("the call raised")

    def end(self, result: Any) -> None:
        """Judge the call, and report what is wrong."""
        if self._record is not None:
            chosen = self._chosen
            with self._recorder.budget.spending(chosen.kind.forward if chosen.forward else None):
                super().end(result)
            self._recorder.react()

    def _take_inputs(self, args: Any, kwargs: Any, parameters: Any = None) -> None:
        super()._take_inputs(args, kwargs, parameters)
        self._seen = self._recorder.before(args, kwargs)
        self._versions = {path: tensor._version for path, tensor in arguments_of(*self._seen).items()}

    def _take_output(self, output: Any, produced: Any) -> None:
        assert self._record is not None
        recorder, elements, inputs = self._recorder, self._elements, self._inputs
        elements.keep_no_more()
        self._record["output"] = elements.output(output)
        if elements.details:
            self._record["details"] = elements.details
        output = recorder.after(self._seen, self._given, output, self.name)
        seen = Observed(
            name=self.name,
            forward=as_json(self._record),
            inputs=elements.tensors,
            args=self._seen[0],
            kwargs=self._seen[1],
            versions=self._versions,
            output=output,
            stack=code_and_lines(self._frame),
        )
        chosen = self._chosen
        call, run = recorder.judge.run_of(seen)
        if chosen.forward:
            recorder.judge_forward(seen, call, run, chosen.kind.forward)
        if chosen.backward:
            self._await_gradients(seen, run, recorder.differentiated(produced), inputs)

    def _await_gradients(self, seen: Observed, run: Run, outputs: list[Any], inputs: Inputs | None) -> None:
        recorder, chosen = self._recorder, self._chosen
        chosen.kind.is_known = True
        if outputs and inputs is not None and inputs.count:
            turns = recorder.selection.differentiated(chosen)
            size = bytes_of((*seen.inputs.values(), *tensors_in((run.output, run.changed), Tensor)))
            if not recorder.fits(size):
                return
            kept = Awaiting(
                name=self.name,
                turns=turns,
                forward=seen.forward,
                inputs=seen.inputs,
                run=copied(run),
                shared=inputs.shared,
                stack=seen.stack,
            )
            recorder.await_gradients(kept, size, outputs, inputs)

"""The free benchmark, whatever the framework: calls made again, thresholds learned in a warm-up, and its table."""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Protocol

from msprobe_hooks.dump.names import backward_of, split_called
from msprobe_hooks.dump.recording_paths import step_rank
from msprobe_hooks.extensions.free_benchmark.argument_changes import Deviation, Judging, NotPerturbedError, outputs_of
from msprobe_hooks.extensions.free_benchmark.config import BenchmarkSettings, Stage
from msprobe_hooks.extensions.free_benchmark.table import FILE_NAME, Form, append_rows, row
from msprobe_hooks.recording.call_records import ApiCall
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.recorder import Recorder
from msprobe_hooks.recording.summary import Summary

_log = logging.getLogger("msprobe_hooks")

_NAMED = 10

# Where a threshold begins, before anything is known of a dtype of an API: msprobe's, as how it is learnt.
_START = 2.05

#: Which threshold: of an API, in a dtype.
Kind = tuple[str, str]


@dataclass(slots=True)
class BenchmarkSummary(Summary):
    """Counts of one benchmark: calls that were perturbed, by API those that changed too much, by reason the others."""

    perturbed: int = 0
    fixed: int = 0
    inconsistent: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)

    @property
    def is_empty(self) -> bool:
        """Return whether nothing was perturbed."""
        return self.perturbed == 0

    def __str__(self) -> str:
        if not self.started:
            return f"no call was perturbed: {self.why_empty()}"
        changed = ", ".join(f"{api} ({count})" for api, count in self.inconsistent.most_common(_NAMED))
        calls = "call was" if self.perturbed == 1 else "calls were"
        lines = [f"{self.perturbed} {calls} repeated with perturbed inputs in {self.seconds:.1f} s"]
        if self.fixed:
            lines.append(f"the results of {self.fixed} replaced the program's")
        lines.append(f"{self.inconsistent.total()} changed too much" + (f": {changed}" if changed else ""))
        lines += [f"{count} left out: {reason}" for reason, count in self.left_out.most_common()]
        return "; ".join([*self.stopped(), *lines, *self.notes()])


class BenchmarkRecorder(Recorder):
    """Has each call that is wanted made once more with perturbed inputs; writes what changes too much.

    With the handler ``check`` nothing of the program changes, with ``fix`` it goes on with the perturbed results.
    """

    judging: ClassVar[Judging]
    form: ClassVar[Form]
    #: The calls of the handler ``fix``.
    fixed_call: ClassVar[type[BenchmarkedCall]]

    summary: BenchmarkSummary

    def __init__(self, settings: Settings, benchmark: BenchmarkSettings) -> None:
        super().__init__(settings)
        self.summary = BenchmarkSummary()
        self.benchmark = benchmark
        self.preheat = _Preheat(benchmark.preheat_step, benchmark.max_sample) if benchmark.if_preheat else None
        self._begun_at: int | None = None

    @abstractmethod
    def again(self, name: str, func: Any, args: Any, kwargs: Any) -> Again:
        """Return a call that is about to be made. Raises NotPerturbedError where it cannot be made twice."""

    @abstractmethod
    def table(self, folder: Path) -> Path:
        """Return where the table of a step is, whose files are in this folder."""

    def api_call(self, name: str, frame: FrameType | None) -> ApiCall:
        """Return what makes a call and makes it again."""
        call = self.fixed_call if self.benchmark.handler_type == "fix" else BenchmarkedCall
        return call(self, name, frame)

    @property
    def steps(self) -> int:
        """Return how many steps there were before this one."""
        if self._begun_at is None:
            self._begun_at = self.step
        return self.step - self._begun_at

    def next_step(self) -> None:
        """End the step; what was learned in it counts from the next on."""
        super().next_step()
        if self.preheat is not None:
            self.preheat.end_step()

    def take(self, name: str, stage: Stage, deviations: list[Deviation]) -> None:
        """Count a call that was made again, and write what changed too much."""
        self.summary.perturbed += 1
        changed = [deviation for deviation in deviations if not deviation.is_consistent]
        if not deviations:
            self.summary.left_out["its results cannot be compared"] += 1
        files = self._files
        if not changed or files is None:
            return
        self.summary.inconsistent[split_called(name)[0]] += 1
        rank = step_rank(files.folder / FILE_NAME).rank
        where = (rank, self.benchmark.pert_mode, stage, self.step, name)
        rows = [
            row(where, one.ratio, one.dtype, one.shape, one.index, flips_sign=one.flips_sign, form=self.form)
            for one in changed
        ]
        _log.warning("%s: perturbed by %s, its result changes too much", name, self.benchmark.pert_mode)
        with self.lock:
            self._or_fail(lambda: append_rows(self.table(files.folder), rows, self.form))

    def note_fixed(self) -> None:
        """Count a call with whose perturbed result the program goes on."""
        self.summary.perturbed += 1
        self.summary.fixed += 1

    def leave_out(self, reason: str) -> None:
        """Count a call that was not made again."""
        self.summary.left_out[reason] += 1


class BenchmarkedCall(ApiCall):
    """A call that is made, and made again."""

    __slots__ = ("is_wanted",)

    _recorder: BenchmarkRecorder

    def begin(self, *_: Any, **__: Any) -> None:
        """Ask whether the call is wanted."""
        self.is_wanted = False
        with self._recorder.net(self.name):
            self.is_wanted = self._recorder.filter.admits(self.name)

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Make the call, make it again, and return what it gives."""
        recorder = self._recorder
        again = inputs = None
        if self.is_wanted:
            try:
                again = recorder.again(self.name, func, args, kwargs)
                inputs = recorder.inputs((args, kwargs)) if self._is_differentiated else None
            except NotPerturbedError as reason:
                recorder.leave_out(str(reason))
            except Exception as error:
                again = None
                self._note_error_before(error)
        result = func(*args, **kwargs)
        if again is not None:
            try:
                again.after_call()
                if inputs is not None:
                    self._await_gradients(again, inputs, result)
                elif recorder.benchmark.fuzz_stage == "forward":
                    self.make_again(again, result)
            except NotPerturbedError as reason:
                recorder.leave_out(str(reason))
            except Exception as error:
                self._note_error_after(error)
        return result

    @property
    def _is_differentiated(self) -> bool:
        recorder = self._recorder
        return recorder.benchmark.fuzz_stage == "backward" and recorder.is_grad_enabled()

    def make_again(self, again: Again, result: Any) -> None:
        """Make the call again, and take how far its result is from the one given, or learn of it."""
        recorder = self._recorder
        mode = recorder.benchmark.pert_mode
        if recorder.preheat is not None and recorder.steps < recorder.preheat.steps:
            self._learn(recorder.preheat, again, result)
            return
        perturbed = again.results(mode)
        with recorder.quiet():
            deviations = recorder.judging.deviations(mode, list(outputs_of(result)), list(outputs_of(perturbed)))
        recorder.take(self.name, "forward", [self._by_what_was_learned(one) for one in deviations])

    def _learn(self, preheat: _Preheat, again: Again, result: Any) -> None:
        api = split_called(self.name)[0]
        steps = self._recorder.steps
        if steps == 0:
            preheat.count(api)
        elif preheat.is_sample(api, int(self.name.rsplit(".", 2)[1]), steps):
            recorder = self._recorder
            mode = recorder.benchmark.pert_mode
            perturbed, on_cpu = again.results(mode), again.results("to_cpu")
            with recorder.quiet():
                originals = list(outputs_of(result))
                deviations = recorder.judging.deviations(mode, originals, list(outputs_of(perturbed)))
                golden = recorder.judging.deviations("to_cpu", originals, list(outputs_of(on_cpu)))
            ratios = [math.inf if one.flips_sign else one.ratio for one in deviations]
            for one, ratio in zip(deviations, ratios, strict=True):
                if ratio is not None:
                    preheat.add(
                        (api, one.dtype), ratio, is_consistent=all(deviation.is_consistent for deviation in golden)
                    )

    def _by_what_was_learned(self, one: Deviation) -> Deviation:
        preheat = self._recorder.preheat
        if preheat is None or one.ratio is None or one.threshold is None:
            return one
        threshold = preheat.threshold((split_called(self.name)[0], one.dtype), one.threshold)
        return Deviation(one.index, one.ratio <= threshold, one.dtype, one.shape, one.ratio, threshold)

    def _await_gradients(self, again: Again, inputs: Any, result: Any) -> None:
        recorder = self._recorder
        if again.writes or again.draws:
            raise NotPerturbedError("its gradient cannot be repeated: it overwrites its inputs or draws random numbers")
        outputs = recorder.differentiated(result)
        if not outputs:
            raise NotPerturbedError("none of its results requires a gradient")
        name, mode, period = backward_of(self.name), recorder.benchmark.pert_mode, recorder.period

        def compare(grad_outputs: list[Any], grad_inputs: list[Any]) -> None:
            if not recorder.accepts_gradients(period):
                return
            try:
                again_given = again.gradients(mode, grad_outputs)
                pairs = zip(grad_inputs, again_given, strict=True)
                comparable = [(one, other) for one, other in pairs if one is not None and other is not None]
                with recorder.quiet():
                    deviations = recorder.judging.deviations(
                        mode,
                        list(outputs_of([one for one, _ in comparable])),
                        list(outputs_of([other for _, other in comparable])),
                        is_gradient=True,
                    )
                recorder.take(name, "backward", deviations)
            except NotPerturbedError as reason:
                recorder.leave_out(str(reason))
            except Exception as error:
                recorder.note_error(name, error)

        recorder.watch(outputs, inputs, compare, name)


class Again(Protocol):
    """A call before it is made, so that it can be made a second time, unseen by the program."""

    #: Whether it may write over what it is given, and whether it has drawn random numbers.
    writes: bool
    draws: bool

    def after_call(self) -> None:
        """Note what the call has done."""

    def results(self, perturbation: str) -> Any:
        """Make the call with perturbed inputs. Raises NotPerturbedError where these cannot be perturbed."""

    def gradients(self, perturbation: str, grad_outputs: list[Any]) -> list[Any]:
        """Return the gradients of perturbed inputs, for those of the outputs that arrived. Raises as ``results``.

        A tensor that was given several times has their sum at each of its places, as a record has it.
        """


def summed(gradients: Iterable[Any], tensors: Sequence[int]) -> list[Any]:
    """Return for each of the tensors, given by their ids, the sum of its gradients, None where it has none.

    A tensor may be among them several times; ``gradients`` are those of each place by itself.
    """
    sums: dict[int, Any] = {}
    for tensor, gradient in zip(tensors, gradients, strict=True):
        if gradient is not None:
            sums[tensor] = sums[tensor] + gradient if tensor in sums else gradient
    return [sums.get(tensor) for tensor in tensors]


@dataclass(slots=True)
class _Learning:
    threshold: float = _START
    is_learned: bool = False
    ratios: dict[bool, list[float]] = field(default_factory=lambda: {True: [], False: []})


class _Preheat:
    """Learns, by API and dtype, how much a right result may change.

    In step 0 calls are counted. In each step from 1 to before ``steps``, some calls of each API are samples: their
    ratio, and whether the CPU in float32 agrees with the result that was not perturbed.
    """

    def __init__(self, steps: int, most: int) -> None:
        self.steps = steps
        self._most = most
        self._expected: Counter[str] = Counter()
        self._learning: dict[Kind, _Learning] = {}

    def count(self, api: str) -> None:
        """Count a call of step 0."""
        self._expected[api] += 1

    def is_sample(self, api: str, number: int, step: int) -> bool:
        """Return whether a call, by its number in the step, is one that the CPU is asked for."""
        calls = self._expected[api]
        if not calls or not 0 < step < self.steps:
            return False
        samples = min(math.ceil(calls / self.steps), self._most)
        # Calls are counted from 1, so the remainder 0 is the last.
        return number + 1 in {(self.steps * place + step) % calls or calls for place in range(samples)}

    def add(self, kind: Kind, ratio: float, *, is_consistent: bool) -> None:
        """Take a sample."""
        self._learning.setdefault(kind, _Learning()).ratios[is_consistent].append(ratio)

    def end_step(self) -> None:
        """Fit to a step's samples."""
        for learning in self._learning.values():
            good, bad = learning.ratios[True], learning.ratios[False]
            if not learning.is_learned and (good or bad):
                self._learn(learning, good, bad)
            learning.ratios = {True: [], False: []}

    def threshold(self, kind: Kind, least: float) -> float:
        """Return what is known of a threshold, which is at least the usual one."""
        learning = self._learning.get(kind)
        return least if learning is None else max(least, learning.threshold)

    @staticmethod
    def _learn(learning: _Learning, good: list[float], bad: list[float]) -> None:
        threshold = learning.threshold
        if not bad:
            widened = any(ratio > threshold for ratio in good)
            learning.threshold = 1 + (threshold - 1) * (2 if widened else 0.5)
        elif not good or max(good) < min(bad):
            learning.threshold = min(*bad, threshold)
            learning.is_learned = True

"""Inputs within and around a record's own, judged as it is; one that fails is shrunk to the smallest that does."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import torch

from msprobe_hooks.dump.names import Direction, parse_api_name
from msprobe_hooks.dump.schema import TensorElement, forward_record, tensors_of
from msprobe_hooks.errors import RecordError
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.inputs.random_tensors import stream_seed
from pytest_msprobe.engine.replay.ops.op_info import random_property
from pytest_msprobe.engine.values.suppress_warnings import suppress_warnings
from pytest_msprobe.engine.values.tensor_text import SMALLEST_INPUT, SmallestInput, plain_tensor
from pytest_msprobe.extensions.explore.minimal_failure import (
    Tensors,
    TimeUpError,
    WrongError,
    kind_of_failure,
    only_drifts,
    search,
    shorten,
)
from pytest_msprobe.extensions.explore.options import ExploreOptions
from pytest_msprobe.extensions.explore.value_strategies import (
    Drawing,
    Plan,
    Sizes,
    drawn_tensors,
    elements_of,
    plans_around,
    plans_just_over,
    plans_over_units,
    recorded_sizes,
    resized,
    smallest_sizes,
    without_layouts,
)
from pytest_msprobe.results.outcomes import Breakdown, Skip, SkipReason
from pytest_msprobe.results.result import DirectionResult

# More elements than this are not drawn.
_MOST_ELEMENTS = 2**16

# Of sizes that are aimed at: three tensors of just over 2^16 elements, results included, and what goes with them.
_MOST_AIMED = 2**18

# The standards of what is computed element by element. All else sums.
_OF_ONE_ROUNDING = frozenset({"binary_consistency", "ulp"})

# A journal is to stay small: what is larger is in a saved case, where the run saves them.
_MOST_BYTES = 16 * 2**10


@dataclass(frozen=True)
class Finding:
    """The smallest input found that fails: the body of its forward record, its replay and its result.

    ``why`` says why its sizes were tried, ``fails_again`` whether it failed when it was run once more.
    """

    body: bytes
    replay: Replay
    result: DirectionResult
    why: str = ""
    fails_again: bool = True


@dataclass
class Exploration:
    """Outcome of exploring: how many inputs were judged, and of them with sizes aimed at, and the finding."""

    judged: int = 0
    aimed: int = 0
    finding: Finding | None = None


def explore(
    replay: Replay,
    body: Mapping[str, Any],
    recorded: DirectionResult,
    options: ExploreOptions,
) -> Exploration:
    """Try inputs around those of a replayed call, whose forward record has this body and came out as ``recorded``.

    Where the recorded input failed, an input must fail as that one does; any failure will do otherwise. The inputs
    depend on the setup's seed and the record's name, and on what Hypothesis's own database holds of earlier runs.
    """
    direction = parse_api_name(recorded.record).direction
    failure_kind = kind_of_failure(recorded) if recorded.verdict.outcome == "fail" else None
    tried = _Search(replay, without_layouts(body), direction, time.monotonic() + options.seconds, failure_kind)
    if tried.is_random:
        return tried.exploration
    key = stream_seed(replay.setup.seed, replay.call.name.key, f"explore.{direction}")
    with suppress_warnings():
        with contextlib.suppress(TimeUpError):
            rounds_once = {output.verdict.standard for output in recorded.outputs} <= _OF_ONE_ROUNDING
            smallest = tried.smallest_sizes()
            # Where the recorded input fails, smaller ones are looked for.
            tried_sizes = tried.aim(smallest, options.examples // 2) if failure_kind is None else 0
            plans = plans_around(replay.call, smallest, direction, rounds_once=rounds_once)
            search(tried.judge, plans, key, options.examples - tried_sizes)
        tried.shorten()
        tried.run_again()
    return tried.exploration


def _elements(call: Call) -> int:
    tensors = tensors_of([*call.forward.args, *call.forward.kwargs.values()])
    return sum(math.prod(tensor.shape) for tensor in tensors)


def _is_refused(candidate: Replay, result: DirectionResult) -> bool:
    """Return whether an input is none that the API takes, on the CPU in the device's own dtypes at least."""
    verdict = result.verdict
    return (
        verdict.outcome == "skip"
        or result.breakdown is Breakdown.OOM
        or (result.breakdown is Breakdown.RUN and candidate.trial.baseline is None)
    )


@dataclass
class _Search:
    """Judges plans and keeps the smallest that fails."""

    replay: Replay
    body: Mapping[str, Any]
    direction: Direction
    end: float
    failure_kind: tuple[str, bool] | None
    exploration: Exploration = field(default_factory=Exploration)
    smallest: tuple[int, int] = (0, 0)
    fewest: int = 0

    @property
    def is_random(self) -> bool:
        """Return whether the API draws its result: then inputs are not what it is judged by."""
        arguments = self.replay.trial.subject.arguments
        try:
            return random_property(self.replay.call.name.api, arguments.args, arguments.kwargs) is not None
        except TypeError:
            return False

    def smallest_sizes(self) -> dict[int, int]:
        """Return what each recorded size can be shrunk to."""
        smallest = smallest_sizes(recorded_sizes(self.replay.call), self._accepts)
        self.fewest = _elements(self._candidate(Plan(smallest, {}, ()))[0].call)
        return smallest

    def _accepts(self, sizes: Sizes) -> bool:
        self._watch_time()
        try:
            self._candidate(Plan(sizes, {}, ()))[0].trial.golden  # noqa: B018 - runs it
        except (Skip, RecordError):
            return False
        return True

    def aim(self, smallest: Sizes, most: int) -> int:
        """Judge sizes at which kernels begin a unit of work that is almost empty; return how many were tried.

        Of a size that fails the least such one is kept.
        """
        plans = plans_just_over(self.replay.call, smallest)[:most]
        for i, plan in enumerate(plans):
            if not self._fails(plan):
                continue
            changed = next(size for size, to in plan.sizes.items() if to != smallest[size])
            _ = any(self._fails(smaller) for smaller in plans_over_units(smallest, changed))
            return i + 1
        return len(plans)

    def _fails(self, plan: Plan) -> bool:
        try:
            self.judge(plan)
        except WrongError:
            return True
        return False

    def judge(self, plan: Plan) -> bool:
        """Judge a plan; False where its input is none that the API takes. Raises WrongError where it fails."""
        self._watch_time()
        try:
            candidate, body = self._candidate(plan)
        except (Skip, RecordError):
            return False
        try:
            result = candidate.judge(self.direction)
        except Exception:
            # What no one recorded may make a function raise anything, on the CPU as well.
            return False
        if _is_refused(candidate, result):
            return False
        self.exploration.judged += 1
        self.exploration.aimed += bool(plan.why)
        if self._is_wanted(result):
            self.failure_kind = kind_of_failure(result)
            self._keep(Finding(msgspec.json.encode(body), candidate, result, plan.why))
            raise WrongError
        return True

    def _is_wanted(self, result: DirectionResult) -> bool:
        # Of one kind, so that shrinking does not slip from one fault to another.
        verdict = result.verdict
        return (
            verdict.outcome == "fail"
            and not only_drifts(verdict)
            and self.failure_kind in (None, kind_of_failure(result))
        )

    def shorten(self) -> None:
        """Make the values of the finding short, if there is one, in what is left of the time."""
        finding = self.exploration.finding
        if finding is None:
            return

        def fails(tensors: Tensors) -> bool:
            self._watch_time()
            candidate = Replay(finding.replay.call, finding.replay.setup, lambda _, path: tensors[path])
            result = candidate.judge(self.direction)
            if _is_refused(candidate, result) or not self._is_wanted(result):
                return False
            self.exploration.finding = Finding(finding.body, candidate, result, finding.why)
            return True

        with contextlib.suppress(TimeUpError):
            shorten(finding.replay.input_tensors(self.direction), fails)

    def run_again(self) -> None:
        """Judge the finding once more, if there is one: of an error that comes once, no input is the cause."""
        finding = self.exploration.finding
        if finding is not None and finding.replay.again().judge(self.direction).verdict.outcome != "fail":
            self.exploration.finding = replace(finding, fails_again=False)

    def _keep(self, finding: Finding) -> None:
        tensors = [tensor for _, tensor in finding.replay.trial.subject.arguments.tensors()]
        size = (sum(tensor.numel() for tensor in tensors), sum(len(str(tensor.tolist())) for tensor in tensors))
        if self.exploration.finding is None or size <= self.smallest:
            self.exploration.finding, self.smallest = finding, size

    def _candidate(self, plan: Plan) -> tuple[Replay, dict[str, Any]]:
        """Return the replay of a plan's input and the body of its record. Raises Skip where it cannot be built."""
        call, setup = self.replay.call, replace(self.replay.setup, memory="given")
        body = resized(self.body, call.name.api, plan.sizes) if plan.sizes else dict(self.body)
        call = replace(call, forward=forward_record(call.forward.name, body))
        if plan.why and elements_of(self.replay.call, plan.sizes) > _MOST_AIMED:
            raise Skip(SkipReason.MEMORY)
        if plan.arguments and _elements(call) > max(_MOST_ELEMENTS, self.fewest):
            raise Skip(SkipReason.MEMORY)
        tensors = drawn_tensors(call, plan)
        gradients: dict[str, Drawing] = {}

        def source(element: TensorElement, path: str) -> torch.Tensor:
            if path in tensors:
                return tensors[path]
            drawing = plan.gradients[len(gradients) % len(plan.gradients)] if plan.gradients else Drawing()
            return gradients.setdefault(path, drawing).tensor(element)

        return Replay(call, setup, source), body

    def _watch_time(self) -> None:
        if time.monotonic() > self.end:
            raise TimeUpError


def smallest_input(finding: Finding, direction: Direction) -> dict[str, Any]:
    """Return the extras that hold a finding's input; none where it is too large for a journal."""
    tensors = finding.replay.input_tensors(direction)
    if sum(tensor.nbytes for tensor in tensors.values()) + len(finding.body) > _MOST_BYTES:
        return {}
    plain = SmallestInput(finding.body.decode(), {path: plain_tensor(tensor) for path, tensor in tensors.items()})
    return {SMALLEST_INPUT: msgspec.to_builtins(plain)}

"""Inputs within and around a record's own, judged as it is; one that fails is shrunk to the smallest that does."""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import hypothesis
import msgspec
import torch
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from hypothesis.database import ExampleDatabase
from hypothesis.errors import HypothesisException

from msprobe_hooks.errors import RecordError
from msprobe_hooks.names import Direction
from msprobe_hooks.schema import TensorElement, forward_record, walk_tensors
from msprobe_standards import Verdict
from pytest_msprobe.explore.options import ExploreOptions
from pytest_msprobe.explore.shortening import Tensors, shorten
from pytest_msprobe.explore.sizes import Sizes, recorded_sizes, resized, smallest_sizes
from pytest_msprobe.explore.values import Drawing, Special, drawings
from pytest_msprobe.replay.arguments import build_arguments
from pytest_msprobe.replay.call import Call, operation
from pytest_msprobe.replay.check import Replay
from pytest_msprobe.replay.constraints import constrain
from pytest_msprobe.replay.failures import describe_error
from pytest_msprobe.replay.random_apis import random_property
from pytest_msprobe.replay.random_inputs import stream_seed
from pytest_msprobe.replay.skips import Skip, SkipReason
from pytest_msprobe.replay.trial import REFUSALS
from pytest_msprobe.results import DirectionResult

# Sizes that are drawn beside the smallest and the recorded one; more elements than this are not drawn.
_SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 33)
_MOST_ELEMENTS = 2**16

# The standards of what is computed element by element. All else sums.
_OF_ONE_ROUNDING = frozenset({"binary_consistency", "ulp"})


@dataclass(frozen=True)
class Plan:
    """One input as drawn: what recorded sizes become, and the drawing of each tensor, gradients that arrive last."""

    sizes: Sizes
    arguments: Mapping[str, Drawing]
    gradients: tuple[Drawing, ...]


@dataclass(frozen=True)
class Finding:
    """The smallest input found that fails: the body of its forward record, its replay and its result."""

    body: bytes
    replay: Replay
    result: DirectionResult


@dataclass
class Exploration:
    """What came of exploring: how many inputs were judged, and the finding if there is one."""

    judged: int = 0
    finding: Finding | None = None


class _WrongError(Exception):
    """An explored input fails."""


class _TimeUpError(BaseException):
    """The time for exploring is over; no Exception, so that Hypothesis does not take it for a failure."""


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
    direction: Direction = "backward" if recorded.record.endswith(".backward") else "forward"
    wanted = _kind(recorded.verdict) if recorded.verdict.outcome == "fail" else None
    search = _Search(replay, body, direction, time.monotonic() + options.seconds, wanted)
    if search.is_random:
        return search.found
    key = stream_seed(replay.setup.seed, replay.call.name.key, f"explore.{direction}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            rounds_once = {output.verdict.standard for output in recorded.outputs} <= _OF_ONE_ROUNDING
            plans = _plans(replay, search.smallest_sizes(), direction, rounds_once=rounds_once)
            _run(search, plans, key, options.examples)
        except (_WrongError, _TimeUpError, HypothesisException):
            # The search has kept the smallest input; that none could be drawn is told by the number of judged ones.
            pass
        search.shorten()
    return search.found


def _run(search: _Search, plans: st.SearchStrategy[Plan], key: int, examples: int) -> None:
    database = hypothesis.settings.default.database  # type: ignore[union-attr]
    settings = hypothesis.settings(
        max_examples=examples,
        deadline=None,
        derandomize=False,
        database=None if database is None else _DatabaseOfRecord(database, key),
        phases=(Phase.reuse, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=hypothesis.Verbosity.quiet,
    )

    @hypothesis.seed(key)
    @settings
    @hypothesis.given(plans)
    def attempt(plan: Plan) -> None:
        hypothesis.assume(search.judge(plan))

    attempt()


class _DatabaseOfRecord(ExampleDatabase):
    """Hypothesis's own database with keys for one record: to Hypothesis all records are one and the same test."""

    def __init__(self, database: ExampleDatabase, key: int) -> None:
        super().__init__()
        self._database = database
        self._prefix = key.to_bytes(8, "big")

    def save(self, key: bytes, value: bytes) -> None:
        self._database.save(self._prefix + key, value)

    def fetch(self, key: bytes) -> Any:
        return self._database.fetch(self._prefix + key)

    def delete(self, key: bytes, value: bytes) -> None:
        self._database.delete(self._prefix + key, value)


def _plans(replay: Replay, smallest: Sizes, direction: Direction, *, rounds_once: bool) -> st.SearchStrategy[Plan]:
    forward, backward = replay.call.forward, replay.call.backward
    elements = dict(_tensor_elements([*forward.args], "args"))
    elements |= dict(_tensor_elements(forward.kwargs, "kwargs"))
    arriving = list(walk_tensors(backward.grad_outputs)) if backward is not None and direction == "backward" else []

    modes: tuple[Special, ...] = ("none", _special(operation(replay.call.name.api), rounds_once=rounds_once))
    strategies = {
        special: {path: drawings(element, special=special) for path, element in elements.items()} for special in modes
    }
    gradients = {special: [drawings(element, special=special) for element in arriving] for special in modes}

    @st.composite
    def plans(draw: st.DrawFn) -> Plan:
        sizes = {size: draw(st.sampled_from(_sizes(size, low))) for size, low in smallest.items()}
        if sizes and draw(st.integers(0, 15)) == 15:
            sizes[draw(st.sampled_from(sorted(sizes)))] = 0
        special = draw(st.sampled_from(modes))
        arguments = {path: draw(strategy) for path, strategy in strategies[special].items()}
        return Plan(sizes, arguments, tuple(map(draw, gradients[special])))

    return plans()


def _kind(verdict: Verdict) -> tuple[str, bool]:
    """Return what two failures must share to be shrunk into each other: the standard, and whether it is about NaN."""
    return verdict.standard, "nonfinite_mismatch" in verdict.metrics


def _is_refused(candidate: Replay, result: DirectionResult) -> bool:
    """Tell whether an input is none that the API takes, on the CPU in the device's own dtypes at least."""
    verdict = result.verdict
    return verdict.outcome == "skip" or (verdict.standard == "run" and candidate.trial.baseline is None)


def _drawn_tensors(call: Call, plan: Plan) -> dict[str, torch.Tensor]:
    """Return the tensors of a plan by path, mended as drawn ones are. Raises Skip where nothing can be made of it."""

    def source(element: TensorElement, path: str) -> torch.Tensor:
        return plan.arguments.get(path, Drawing()).tensor(element)

    try:
        drawn = build_arguments(call, seed=0, real_data=False, source=source)
        args, kwargs = constrain(call.name.api, drawn.args, drawn.kwargs, seed=0)
    except REFUSALS as error:
        # The rules for drawn tensors know no sizes of zero.
        raise Skip(SkipReason.REJECTED_INPUTS, describe_error(error)) from None
    return dict(replace(drawn, args=args, kwargs=kwargs).tensors())


def _special(name: str, *, rounds_once: bool) -> Special:
    if "conv" in name:
        return "finite"
    return "all" if rounds_once else "safe"


def _elements(call: Call) -> int:
    tensors: list[TensorElement] = list(walk_tensors([*call.forward.args, *call.forward.kwargs.values()]))
    return sum(math.prod(tensor.shape) for tensor in tensors)


def _sizes(size: int, smallest: int) -> list[int]:
    return [smallest, *(other for other in _SIZES if smallest < other < size), size]


def _tensor_elements(element: Any, path: str) -> Any:
    if isinstance(element, TensorElement):
        yield path, element
    members = getattr(element, "items", element)
    if isinstance(element, dict):
        members = element
    if isinstance(members, dict):
        for key, item in members.items():
            yield from _tensor_elements(item, f"{path}.{key}")
    elif isinstance(members, list):
        for i, item in enumerate(members):
            yield from _tensor_elements(item, f"{path}.{i}")


@dataclass
class _Search:
    """Judges plans and keeps the smallest that fails."""

    replay: Replay
    body: Mapping[str, Any]
    direction: Direction
    end: float
    wanted: tuple[str, bool] | None
    found: Exploration = field(default_factory=Exploration)
    smallest: tuple[int, int] = (0, 0)
    fewest: int = 0

    @property
    def is_random(self) -> bool:
        """Whether the API draws its result: then inputs are not what it is judged by."""
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

    def judge(self, plan: Plan) -> bool:
        """Judge a plan; False where its input is none that the API takes. Raises _WrongError where it fails."""
        self._watch_time()
        try:
            candidate, body = self._candidate(plan)
        except (Skip, RecordError):
            return False
        result = candidate.judge(self.direction)
        if _is_refused(candidate, result):
            return False
        self.found.judged += 1
        if self._is_wanted(result):
            self.wanted = _kind(result.verdict)
            self._keep(Finding(msgspec.json.encode(body), candidate, result))
            raise _WrongError
        return True

    def _is_wanted(self, result: DirectionResult) -> bool:
        # Of one kind, so that shrinking does not slip from one fault to another.
        verdict = result.verdict
        return verdict.outcome == "fail" and self.wanted in (None, _kind(verdict))

    def shorten(self) -> None:
        """Make the values of the finding short, if there is one, in what is left of the time."""
        finding = self.found.finding
        if finding is None:
            return

        def fails(tensors: Tensors) -> bool:
            self._watch_time()
            candidate = Replay(finding.replay.call, self.replay.setup, lambda _, path: tensors[path])
            result = candidate.judge(self.direction)
            if _is_refused(candidate, result) or not self._is_wanted(result):
                return False
            self.found.finding = Finding(finding.body, candidate, result)
            return True

        with contextlib.suppress(_TimeUpError):
            shorten(finding.replay.input_tensors(self.direction), fails)

    def _keep(self, finding: Finding) -> None:
        tensors = [tensor for _, tensor in finding.replay.trial.subject.arguments.tensors()]
        size = (sum(tensor.numel() for tensor in tensors), sum(len(str(tensor.tolist())) for tensor in tensors))
        if self.found.finding is None or size <= self.smallest:
            self.found.finding, self.smallest = finding, size

    def _candidate(self, plan: Plan) -> tuple[Replay, dict[str, Any]]:
        """Return the replay of a plan's input and the body of its record. Raises Skip where it cannot be built."""
        call, setup = self.replay.call, self.replay.setup
        body = resized(self.body, call.name.api, plan.sizes) if plan.sizes else dict(self.body)
        call = replace(call, forward=forward_record(call.forward.name, body))
        if plan.arguments and _elements(call) > max(_MOST_ELEMENTS, self.fewest):
            raise Skip(SkipReason.MEMORY)
        tensors = _drawn_tensors(call, plan)
        gradients: dict[str, Drawing] = {}

        def source(element: TensorElement, path: str) -> torch.Tensor:
            if path in tensors:
                return tensors[path]
            drawing = plan.gradients[len(gradients) % len(plan.gradients)] if plan.gradients else Drawing()
            return gradients.setdefault(path, drawing).tensor(element)

        return Replay(call, setup, source), body

    def _watch_time(self) -> None:
        if time.monotonic() > self.end:
            raise _TimeUpError

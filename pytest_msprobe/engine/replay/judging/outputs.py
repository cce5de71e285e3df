"""Verdicts on the outputs of one direction of a trial: standards, error maps, credibility."""

from __future__ import annotations

import contextlib
import heapq
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from msprobe_hooks.dump.names import Direction
from msprobe_standards import Policy, Standard, Verdict, fitting, judge_tree, measure, msprobe_bounds
from msprobe_standards.dtypes import family, float_format
from msprobe_standards.protocol import elements_in_words
from msprobe_standards.tensor_layouts import is_plain
from pytest_msprobe.engine.replay.calls.arguments import CheckError, TargetError
from pytest_msprobe.engine.replay.calls.remote_calls import LinkError
from pytest_msprobe.engine.replay.judging.laid_out_baseline import describe_difference, judge_by_layouts
from pytest_msprobe.engine.replay.judging.math_mode import ModeJudge
from pytest_msprobe.engine.replay.ops.canonical_factors import in_precision_of, relative_to_whole
from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.engine.replay.trials.baseline_protocol import Prepare, Recorded
from pytest_msprobe.engine.replay.trials.trial import Trial, as_sequence
from pytest_msprobe.engine.values.error_kinds import is_out_of_memory
from pytest_msprobe.engine.values.error_locations import error_map
from pytest_msprobe.engine.values.pytree import first_leaf, map_tensors, tensors_with_paths
from pytest_msprobe.engine.values.tolerance import Allowance, mean_magnitude
from pytest_msprobe.results.error_map import ErrorMap
from pytest_msprobe.results.outcomes import Breakdown, Skip, SkipReason, describe_error
from pytest_msprobe.results.result import DirectionResult, OutputResult, decided, failed_without_result

# A map takes some 5 kB of a journal; a call may have hundreds of outputs.
_MOST_MAPS = 4
# The roundings of a right result spread evenly: the greatest is √3 = 1.7 times their root mean square.
_OF_MEAN = 2.0


def with_error_maps(
    results: Sequence[OutputResult],
    targets: Mapping[str, torch.Tensor],
    goldens: Mapping[str, torch.Tensor],
    baseline: Any,
    select: Callable[[Any], Standard],
) -> list[OutputResult]:
    """Return the results with a map of each of the worst that fail; ``select`` gives the standard of an output.

    ``baseline`` is the tree of its outputs, as far as it was asked for.
    """
    failing = [result for result in results if result.verdict.outcome == "fail"]
    if not failing:
        return list(results)
    worst = heapq.nlargest(_MOST_MAPS, failing, key=lambda result: result.verdict.margin)
    mapped, baselines = list(results), dict(tensors_with_paths(baseline))
    for place, result in enumerate(results):
        target, golden = targets.get(result.path), goldens.get(result.path)
        if (
            any(result is worst_result for worst_result in worst)
            and target is not None
            and golden is not None
            and is_plain(golden)
        ):
            allowance = allowance_of(result.verdict, fitting(select(target), target.dtype), target.dtype, golden)
            located = error_map(target, golden, allowance, baseline=baselines.get(result.path))
            mapped[place] = replace(result, verdict=_with_count(result.verdict, located), error_map=located)
    return mapped


def _with_count(verdict: Verdict, located: ErrorMap | None) -> Verdict:
    """Return the verdict with the number of wrong elements, where its reason begins with the greatest error."""
    if located is None or not located.wrong or not verdict.reason.startswith("up to "):
        return verdict
    wrong = elements_in_words(located.wrong, math.prod(located.shape))
    return replace(verdict, reason=f"{wrong} wrong, {verdict.reason}")


def allowance_of(verdict: Verdict, standard: Standard, dtype: torch.dtype, golden: torch.Tensor) -> Allowance:
    """Return what an element may err by, where the verdict limits single elements or their mean error.

    A standard that counts wrong elements says by its bounds which are. Where no limit is about the error of elements,
    that is correct rounding: half a unit in the last place, of integers and bools none.
    """
    limits = {name: limit for name, limit in verdict.limits.items() if limit > 0}
    if family(dtype) in ("bool", "int"):
        return Allowance(ulps=0.5, absolute=limits.get("max_abs_err", 0.0))
    if "max_ulp_error" in limits:
        return Allowance(ulps=limits["max_ulp_error"])
    scaled = [name for name in ("max_scaled_error", "rms_scaled_error") if name in limits]
    if scaled:
        decisive = max(scaled, key=lambda name: verdict.metrics.get(name, 0.0) / limits[name])
        errors = limits[decisive] * (_OF_MEAN if decisive == "rms_scaled_error" else 1)
        return Allowance(scaled=errors * float_format(dtype).unit_roundoff, scale=mean_magnitude(golden))
    bounds = standard.bounds(dtype)
    if "ulp_error_proportion" in verdict.limits:
        return Allowance(ulps=bounds.ulp)
    if "rel_err_ratio" in verdict.limits:
        return Allowance(absolute=bounds.atol, relative=bounds.rtol)
    if "rel_err_thousandth" in limits:
        return Allowance(relative=1e-3)
    if "max_abs_err" in limits:
        return Allowance(absolute=limits["max_abs_err"])
    return Allowance(ulps=0.5)


def identity(path: str, tensor: torch.Tensor) -> torch.Tensor:
    """Do nothing to the tensor of a recorded baseline."""
    return tensor


@dataclass(frozen=True, slots=True)
class JudgingContext:
    """Context that target and golden are judged with; each part is asked only where a verdict depends on it.

    ``baseline`` gives the CPU's own results as a tree, None where there are none, and ``moved`` a tree for each golden
    run with moved inputs. ``recorded`` is what a recorded baseline has; ``prepare`` does to its tensors, by path, what
    was done to those of the trees. ``in_mode`` judges what failed in the modes that the device states. ``batch`` is the
    shape of a batch of matrices that the call takes. ``laid_out`` gives the CPU's results for the layouts that the
    device had; None where those are contiguous.
    """

    baseline: Callable[[], Any]
    moved: Callable[[], list[Any]]
    recorded: Recorded | None = None
    prepare: Prepare = identity
    in_mode: ModeJudge | None = None
    batch: tuple[int, ...] = ()
    laid_out: Callable[[], Any] | None = None


def judge_outputs(
    target: Any, golden: Any, context: JudgingContext, select: Callable[[Any], Standard], *, measure_all: bool = False
) -> list[OutputResult]:
    """Judge each tensor of a tree by the standard that ``select`` gives for it, in the order of golden's tree.

    ``measure_all`` adds every metric to those that decide.
    """
    targets, goldens = dict(tensors_with_paths(target)), dict(tensors_with_paths(golden))
    recorded = None if context.recorded is None else context.recorded.for_outputs(targets, goldens, context.prepare)
    computed: list[Any] = []

    def baseline() -> Any:
        computed[:] = computed or [context.baseline()]
        return computed[0]

    def by_dtype(target: Any) -> list[tuple[str, Verdict]]:
        def judged_by(baseline: Callable[[], Any]) -> list[tuple[str, Verdict]]:
            return judge_tree(
                target,
                golden,
                select=lambda _, leaf: select(leaf),
                baseline=baseline,
                recorded=recorded,
                moved=context.moved,
                batch=context.batch,
            )

        verdicts = judged_by(baseline)
        if context.laid_out is None:
            return verdicts
        return judge_by_layouts(
            verdicts, golden, context.laid_out, context.moved, lambda other: judged_by(lambda: other)
        )

    in_mode = context.in_mode
    judged = by_dtype(target) if in_mode is None else in_mode.judge(target, golden, by_dtype)
    results = [
        output_result(path, verdict, targets.get(path), goldens.get(path), select if measure_all else None)
        for path, verdict in judged
    ]
    if in_mode is not None and in_mode.modes:
        results = [replace(result, math_mode=in_mode.modes.get(result.path, "")) for result in results]
    results = results if recorded is None else list(map(recorded.without_missing, results))
    return with_error_maps(results, targets, goldens, computed and computed[0], select)


def output_result(
    path: str,
    verdict: Verdict,
    target: Any,
    golden: torch.Tensor | None,
    measure_for: Callable[[Any], Standard] | None = None,
) -> OutputResult:
    """Return a verdict with what it is about; with every metric where ``measure_for`` gives an output's standard."""
    tensor = first_leaf(target, torch.Tensor)
    result = OutputResult(
        path,
        verdict,
        target_dtype="" if tensor is None else str(tensor.dtype),
        golden_dtype="" if golden is None else str(golden.dtype),
        shape=() if tensor is None else tuple(tensor.shape),
        difference=_difference(tensor, golden) if verdict.outcome in ("fail", "warn") else "",
    )
    return result if measure_for is None else _measured(result, tensor, golden, measure_for)


def _difference(target: torch.Tensor | None, golden: torch.Tensor | None) -> str:
    return "" if target is None or golden is None else describe_difference(target, golden)


def _measured(
    result: OutputResult,
    target: torch.Tensor | None,
    golden: torch.Tensor | None,
    select: Callable[[Any], Standard],
) -> OutputResult:
    """Add every number by msprobe's bounds, and what the standard of this output reads by its own, if it has any."""
    if target is None or golden is None or target.shape != golden.shape or family(target.dtype) != family(golden.dtype):
        return result
    result = replace(result, measured=dict(measure(target, golden)))
    standard = fitting(select(target), target.dtype)
    bounds = standard.bounds(target.dtype)
    if bounds == msprobe_bounds(target.dtype):
        return result
    own = measure(target, golden, only=standard.wanted, bounds=bounds)
    return replace(result, own_bounds=asdict(bounds), own_measured=dict(own))


class NoRuleError(Exception):
    """The policy has no rule for an output."""


def result_of(
    record: str, judged: Callable[[], list[OutputResult]], raised: list[BaseException] | None = None
) -> DirectionResult:
    """Judge one direction and let its worst output decide; what cannot be judged is a skip with its reason.

    The list ``raised`` gets the exception of the checked function, or of golden, that the result is about.
    """
    started = time.perf_counter()
    try:
        outputs = judged()
    except Skip as skip:
        if skip.reason in (SkipReason.REJECTED_INPUTS, SkipReason.NO_GOLDEN):
            _keep_cause(skip, raised)
        return DirectionResult(record, Verdict("skip", "", str(skip)), skip=skip.reason)
    except NoRuleError as error:
        return failed_without_result(record, Breakdown.POLICY, str(error))
    except CheckError as error:
        _keep_cause(error, raised)
        return failed_without_result(record, Breakdown.TEST, str(error))
    except TargetError as error:
        _keep_cause(error, raised)
        reason = f"the API raises on the device, but not on the CPU: {error}"
        return failed_without_result(record, Breakdown.RUN, reason)
    except LinkError as error:
        return failed_without_result(record, error.breakdown, str(error))
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return failed_without_result(record, Breakdown.OOM, f"memory ran out: {describe_error(error)}")
    return decided(record, outputs, time.perf_counter() - started)


def _keep_cause(error: Exception, raised: list[BaseException] | None) -> None:
    if raised is not None and error.__cause__ is not None:
        raised.append(error.__cause__)


def wrong_reconstructions(
    trial: Trial,
    target: dict[str, Any],
    golden: dict[str, Any],
    context: JudgingContext,
    select: Callable[[Any], Standard],
) -> list[OutputResult]:
    """Return the failures of what factors multiply to.

    It is only to be asked where the baseline was: factors within a few roundings of golden's multiply to the same.
    """
    products = op_info(trial.subject.api).products
    if products is None:
        return []

    def of(tree: dict[str, Any]) -> dict[str, Any]:
        return {
            "product": relative_to_whole(products, tree["output"], golden["output"], as_sequence(trial.golden.output))
        }

    def of_baseline() -> Any:
        outputs = context.baseline()
        return outputs and of(outputs)

    ours = map_tensors(lambda product: in_precision_of(target["output"][0], product), of(target))
    of_products = JudgingContext(of_baseline, lambda: list(map(of, context.moved())), batch=context.batch)
    results = judge_outputs(ours, of(golden), of_products, select)
    return [result for result in results if result.verdict.outcome == "fail"]


@dataclass(frozen=True, slots=True)
class StandardSelection:
    """A policy, and what it is asked with for every output of one call; `Policy.select` says what each field means."""

    policy: Policy
    api: str
    input_dtypes: frozenset[torch.dtype]
    framework: str
    device: str
    scalars: bool
    recorded_baseline: bool

    def select(self, direction: Direction, leaf: Any, modes: Collection[str] = ()) -> Standard:
        """Return the standard for an output, a tensor or a Python value, that was computed in these modes.

        Raises NoRuleError where the policy has none.
        """
        try:
            return self.policy.select(
                self.api,
                output_dtype=leaf.dtype if isinstance(leaf, torch.Tensor) else None,
                input_dtypes=self.input_dtypes,
                framework=self.framework,
                backward=direction == "backward",
                scalars=self.scalars,
                recorded_baseline=self.recorded_baseline,
                device=self.device,
                math_modes=modes,
            )
        except ValueError as error:
            raise NoRuleError(str(error)) from None

    def select_in_mode(self, direction: Direction, leaf: Any, modes: Collection[str]) -> Standard | None:
        """Return what `select` does; None where the policy has no rule for these modes."""
        with contextlib.suppress(NoRuleError):
            return self.select(direction, leaf, modes)
        return None

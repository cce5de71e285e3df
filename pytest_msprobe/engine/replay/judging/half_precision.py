"""Results in 16 bits: what sums in float32 that are rounded once allow, and failures decided against float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import torch

from msprobe_hooks.dump.names import Direction
from msprobe_standards import Benchmark, measure
from msprobe_standards.dtypes import float_format
from msprobe_standards.protocol import exceeded, number, within
from pytest_msprobe.engine.replay.calls.arguments import CheckError
from pytest_msprobe.engine.replay.judging.outputs import output_result
from pytest_msprobe.engine.replay.judging.run_outputs import all_of, detached, memory_of, present, produced
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.error_kinds import is_out_of_memory
from pytest_msprobe.engine.values.pytree import tensors_with_paths
from pytest_msprobe.results.outcomes import Skip
from pytest_msprobe.results.result import OutputResult

_RANDOM = "random"

_HALVES = {"torch.float16": torch.float16, "torch.bfloat16": torch.bfloat16}
_WIDE = {"torch.float32": torch.float32, "torch.float64": torch.float64}
# A choice, in roundoffs of 16 bits: a baseline that rounds to them errs by 0.3 at least, and twice that is allowed.
_ALLOWS_ROUNDING = 0.5
# Rounded once from one operation in float32, or from two where an operand is scaled.
_ARITHMETIC = frozenset(
    "add sub subtract rsub mul multiply div divide true_divide square sqrt reciprocal __add__ __radd__ __sub__ "
    "__rsub__ __mul__ __rmul__ __truediv__ __rtruediv__".split()
)
# Results that are sums of products of the inputs, one factor of each.
_PRODUCTS = frozenset(
    "linear matmul __matmul__ __rmatmul__ mm bmm mv dot inner addmm addmv baddbmm conv1d conv2d conv3d "
    "conv_transpose1d conv_transpose2d conv_transpose3d convolution".split()
)
_SUMS = frozenset("sum nansum mean cumsum index_add scatter_add".split()) | _PRODUCTS
# Gradients that are such sums and that one kernel computes: autograd rounds in between for `mul` and `einsum`.
_SUMMED_GRADIENTS = _PRODUCTS | frozenset(
    "add __add__ __radd__ embedding gather index_select take expand expand_as broadcast_to repeat cumsum".split()
)
# Many libraries round a product before they add what it is added to.
_WITH_INPUT = frozenset(("addmm", "addmv", "baddbmm"))

# A rounding error exceeds the bound of n terms with a probability of 2 n exp(-7²/2), 5e-11 for one term (Higham & Mary,
# "A new approach to probabilistic rounding error analysis", 2019, theorem 2.4).
_DEVIATIONS = 7.0
# Of what a standard measures, and so costs nothing: results that are rounded once err by 1 at most.
_ROUNDED_ONCE = {"max_scaled_error": 1.01, "max_ulp_error": 0.505}
_FLOAT32 = 2.0**-24  # its unit roundoff
_OPERATIONS = 4.0  # of _ARITHMETIC in float32, a scalar's rounding included


def is_rounded_more(result: OutputResult) -> bool:
    """Return whether a result of 16 bits passes though an element errs by more than one rounding."""
    verdict = result.verdict
    if verdict.outcome != "pass" or result.math_mode or result.target_dtype not in _HALVES:
        return False
    measured = [verdict.metrics[name] > most for name, most in _ROUNDED_ONCE.items() if name in verdict.metrics]
    return any(measured) if measured else verdict.margin > 0


def beyond_float32_sums(trial: Trial, direction: Direction, results: Sequence[OutputResult]) -> dict[str, OutputResult]:
    """Return, by path, failing results for those that pass and err by more than float32 sums that are rounded once.

    With n terms t of a sum, g the golden value, s the mean magnitude of golden and u the unit roundoff of the format,
    float32 sums in any order err by at most

        u max(|g|, s) + 2^-24 (min(n, 7 √n) Σ |t| + n |g|)

    that is one rounding to the nearest, the bound of rounding errors that are as often up as down (Higham & Mary, 2019)
    and, for terms of one sign, whose errors may all have one too, the bound of any errors (Higham, "Accuracy and
    Stability of Numerical Algorithms", 4.2). The greatest n and Σ |t| of a result count, which golden shows for inputs
    of 1 and for the inputs' magnitudes. Where golden is float32 itself, its own errors are allowed as well, and where
    an addend follows a product, the rounding of that.
    """
    suspect = {result.path: _HALVES[result.target_dtype] for result in results if is_rounded_more(result)}
    if not suspect or not _is_known(trial, direction):
        return {}
    trees = produced(trial, direction, ("target", "golden"))
    targets, goldens = dict(tensors_with_paths(trees["target"])), dict(tensors_with_paths(trees["golden"]))
    errors = _errors_of_arithmetic if _name(trial) in _ARITHMETIC and direction == "forward" else _errors_of_sums
    in_float32, failures = errors(trial, direction, goldens), {}
    inputs = trial.subject.arguments.tensors()
    float_dtypes = {tensor.dtype for _, tensor in inputs if tensor.is_floating_point()}
    for path in suspect.keys() & targets.keys() & in_float32.keys():
        target, golden, dtype = targets[path], goldens[path], suspect[path]
        metrics = measure(target, golden, only={"max_scaled_error", "scale"})
        scale = metrics["scale"]
        if not scale or float_dtypes != {dtype}:
            continue
        relative, absolute, addend = in_float32[path]
        own = (1 + (golden.dtype == torch.float32)) * (relative + absolute / scale) * _FLOAT32
        allowed = 1 + own / float_format(dtype).unit_roundoff + (1 + addend / scale if addend else 0)
        verdict = within(Benchmark.name, metrics, {"max_scaled_error": allowed})
        if verdict.outcome == "fail" and math.isfinite(verdict.margin):
            reason = f"more than float32 sums, rounded once to the nearest: {verdict.reason}"
            failures[path] = output_result(path, replace(verdict, reason=reason), target, golden)
    return failures


def _name(trial: Trial) -> str:
    name = trial.subject.operation
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def _is_known(trial: Trial, direction: Direction) -> bool:
    """Return whether what a call adds up is known: autocast rounds its inputs, a factor is rounded with its product."""
    name, keywords = _name(trial), trial.subject.arguments.kwargs
    if trial.subject.autocast is not None or any(keywords.get(factor, 1) != 1 for factor in ("alpha", "beta")):
        return False
    return name in (_SUMS | _ARITHMETIC if direction == "forward" else _SUMMED_GRADIENTS)


#: What float32 errs by in its unit roundoffs: relative to an element, and absolutely; and the greatest addend.
_Errors: TypeAlias = "tuple[float, float, float]"


def _errors_of_arithmetic(trial: Trial, direction: Direction, goldens: dict[str, torch.Tensor]) -> dict[str, _Errors]:
    greatest = max((_greatest(tensor) for _, tensor in trial.subject.arguments.tensors()), default=0.0)
    return dict.fromkeys(goldens, (_OPERATIONS, _OPERATIONS * greatest, 0.0))


def _errors_of_sums(trial: Trial, direction: Direction, goldens: dict[str, torch.Tensor]) -> dict[str, _Errors]:
    counts = _greatest_of_golden(trial, direction, torch.ones_like)
    magnitudes = _greatest_of_golden(trial, direction, torch.abs)
    inputs = sum(tensor.numel() for _, tensor in trial.subject.arguments.tensors())
    addend = _addend(trial) if direction == "forward" else 0.0
    errors = {}
    for path in goldens.keys() & counts.keys() & magnitudes.keys():
        # Of a mean golden shows one term.
        count = max(counts[path], inputs / max(goldens[path].numel(), 1))
        errors[path] = (count, min(count, _DEVIATIONS * math.sqrt(count)) * magnitudes[path], addend)
    return {path: numbers for path, numbers in errors.items() if all(map(math.isfinite, numbers))}


def _greatest_of_golden(
    trial: Trial, direction: Direction, change: Callable[[torch.Tensor], torch.Tensor]
) -> dict[str, float]:
    """Return by path the greatest magnitude that golden gives for changed inputs, gradients that arrive included."""
    golden = trial.golden_side

    def put(tensor: torch.Tensor) -> torch.Tensor:
        placed = golden.put(tensor)
        return change(placed) if placed.is_floating_point() else placed

    side = replace(golden, put=put)
    run = trial.forward_on(side)
    if run is None:
        return {}
    if direction == "backward":
        tree = {"grad": present(trial.gradients_on(side, run) or {}, detached)}
    else:
        tree = all_of(trial, run, detached, memory_of(trial, trial.golden, trial.target))
    return {path: _greatest(tensor) for path, tensor in tensors_with_paths(tree)}


def _greatest(tensor: torch.Tensor) -> float:
    return float(tensor.abs().max()) if tensor.is_floating_point() and tensor.numel() else 0.0


def _addend(trial: Trial) -> float:
    """Return the greatest magnitude of what a product is added to; 0 where there is nothing."""
    name = _name(trial)
    places = {"args.0", "kwargs.input"} if name in _WITH_INPUT else {"args.2", "kwargs.bias"}
    tensors = [tensor for path, tensor in trial.subject.arguments.tensors() if path in places]
    return max(map(_greatest, tensors), default=0.0) if name in _PRODUCTS else 0.0


def judged_in_float64(trial: Trial, judge: Callable[[], list[OutputResult]]) -> list[OutputResult]:
    """Return the verdicts on a trial, those against golden in float64 where golden was float32 and one of them fails.

    Golden in float32 may be further from the truth than a 16-bit result: where its own sums cancel or its exponentials
    overflow. Where the CPU has no float64, or no memory for it, the first verdicts stay.
    """
    # A failure of the forward call is no reason to judge its gradients by another golden result.
    trial.lower_golden()
    outputs = judge()
    if not any(_is_wrong(output) for output in outputs):
        return outputs
    # What fails of a random call may be the second run of it, without randomness.
    trials = [candidate for candidate in (trial, vars(trial).get("switched_off")) if candidate is not None]
    raised = [candidate for candidate in trials if candidate.raise_golden()]
    if not raised:
        return outputs
    try:
        return judge()
    except Exception as error:
        if not isinstance(error, (Skip, CheckError)) and not is_out_of_memory(error):
            raise
        for candidate in raised:
            candidate.lower_golden()
        return outputs


def with_narrow_roundoffs(trial: Trial, results: list[OutputResult]) -> list[OutputResult]:
    """Return results of which failures in 32 or 64 bits count their errors in roundoffs of 16 bits as well.

    That is where the call computes in these: it has such inputs, or ran under autocast, and the limit allows for it.
    """
    dtypes = {trial.subject.autocast, *(tensor.dtype for _, tensor in trial.subject.arguments.tensors())}
    narrow = next((dtype for dtype in _HALVES.values() if dtype in dtypes), None)
    return results if narrow is None else [_with_roundoffs_of(narrow, result) for result in results]


def _with_roundoffs_of(narrow: torch.dtype, result: OutputResult) -> OutputResult:
    verdict, wide = result.verdict, _WIDE.get(result.target_dtype)
    if verdict.outcome != "fail" or wide is None:
        return result
    times = float_format(narrow).unit_roundoff / float_format(wide).unit_roundoff
    reason = verdict.reason
    for name in ("max_scaled_error", "rms_scaled_error"):
        value, limit = verdict.metrics.get(name, 0.0), verdict.limits.get(name, 0.0)
        said = exceeded(name, value, limit)
        if limit >= _ALLOWS_ROUNDING * times and said in reason:
            of_wide = said.replace(" unit roundoffs", f" unit roundoffs of {str(wide)[6:]}")
            of_narrow = f"{number(value / times)} of {str(narrow)[6:]}'s ({number(limit / times)} allowed)"
            reason = reason.replace(said, f"{of_wide}, which are {of_narrow}")
    return replace(result, verdict=replace(verdict, reason=reason))


def _is_wrong(output: OutputResult) -> bool:
    return output.verdict.outcome == "fail" and output.verdict.standard != _RANDOM

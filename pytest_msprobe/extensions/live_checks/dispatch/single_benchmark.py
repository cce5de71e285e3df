"""msprobe's single-benchmark standard: greatest error and bias, of what is small and of what is large.

Facts: the online dispatch of mindstudio-probe 1.2.2. Other than there, the limits are those of the result's own dtype,
errors below magnitude 1 count, a bias of either sign fails, and inf and NaN must be where golden has them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from msprobe_standards import Verdict
from msprobe_standards.fixed_limits import NotCompared
from pytest_msprobe.engine.replay.judging.directions import judge_forward
from pytest_msprobe.engine.replay.judging.run_outputs import produced
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.values.pytree import tensors_with_paths
from pytest_msprobe.results.result import OutputResult

NAME = "single_benchmark"

# mindstudio-probe 1.2.2's limits of its high-precision kind, which is the one that its dispatch uses.
_MOST_ERROR = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
_MOST_BALANCE = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
_OTHERWISE = 2.0**-14
_EPSILON = 1.2e-7


def judge_singly(trial: Trial) -> list[OutputResult]:
    """Judge what a call returned and changed against golden alone; what it drew, by what that must be like.

    Raises Skip as the golden run does.
    """
    if trial.randomness is not None:
        return judge_forward(trial, lambda *_: NotCompared())
    # Golden first: what no one can compute has no trees.
    _ = trial.golden
    trees = produced(trial, "forward", ("target", "golden"))
    targets, goldens = (dict(tensors_with_paths(trees[side])) for side in ("target", "golden"))
    return [_judged(path, targets.get(path), golden) for path, golden in goldens.items()]


def _judged(path: str, target: torch.Tensor | None, golden: torch.Tensor) -> OutputResult:
    if target is None:
        return OutputResult(path, _failed("the output is missing"), golden_dtype=str(golden.dtype))
    described = {"target_dtype": str(target.dtype), "golden_dtype": str(golden.dtype), "shape": tuple(target.shape)}
    if target.shape != golden.shape:
        verdict = _failed(f"the shape is {tuple(target.shape)}, golden's is {tuple(golden.shape)}")
        return OutputResult(path, verdict, **described)  # type: ignore[arg-type]
    if not (target.is_floating_point() or target.is_complex()):
        wrong = int((target != golden.to(target.dtype)).sum())
        verdict = _failed(f"{wrong} of {target.numel()} elements differ") if wrong else Verdict("pass", NAME)
        return OutputResult(path, verdict, **described)  # type: ignore[arg-type]
    numbers = measure(_parts(target), _parts(golden), target.dtype.to_real())
    return OutputResult(path, _decided(numbers, target.dtype), measured=numbers, **described)  # type: ignore[arg-type]


def measure(target: torch.Tensor, golden: torch.Tensor, dtype: torch.dtype) -> dict[str, float]:
    """Return the numbers of one output of a real ``dtype``, given with golden's as flat float64.

    ``max_abs_idx`` and ``max_rel_idx`` are places in the flat output, -1 where there is no such element.
    """
    error, size = target - golden, golden.abs()
    mismatched, count = 0, target.numel()
    # What is finite, and no larger than the dtype holds, is so on both sides. Mostly that is all,
    # and one pass shows it.
    if count and not (error.isfinite().all() and size.max() <= torch.finfo(dtype).max):
        rounded = golden.to(dtype).double()
        finite = target.isfinite() & rounded.isfinite()
        same = (target == rounded) | (target.isnan() & rounded.isnan())
        mismatched, count = int((~finite & ~same).sum()), int(finite.sum())
        error, size = torch.where(finite, error, 0.0), torch.where(finite, size, math.nan)
    is_large = size >= 1
    scaled = torch.where(is_large, error / (size + _EPSILON), error)
    magnitude = scaled.abs()
    abs_idx, abs_diff = _greatest(magnitude, size < 1)
    rel_idx, rel_diff = _greatest(magnitude, is_large)
    return {
        "error_balance": float(scaled.sum()) / count if count else 0.0,
        "max_abs_diff": abs_diff,
        "max_abs_idx": abs_idx,
        "max_rel_diff": rel_diff,
        "max_rel_idx": rel_idx,
        "nonfinite_mismatch": mismatched,
    }


def _greatest(errors: torch.Tensor, mask: torch.Tensor) -> tuple[int, float]:
    if not mask.any():
        return -1, 0.0
    value, place = torch.where(mask, errors, -1.0).max(0)
    return int(place), float(value)


def _decided(numbers: Mapping[str, float], dtype: torch.dtype) -> Verdict:
    error = _MOST_ERROR.get(dtype, _OTHERWISE)
    limits = {"error_balance": _MOST_BALANCE.get(dtype, _OTHERWISE), "max_abs_diff": error, "max_rel_diff": error}
    shown = {name: numbers[name] for name in limits}
    if numbers["nonfinite_mismatch"]:
        reason = f"{numbers['nonfinite_mismatch']} elements are inf or NaN where golden is not, or the other way round"
        return Verdict("fail", NAME, reason, shown, limits, math.inf)
    ratios = {name: abs(value) / limits[name] for name, value in shown.items()}
    over = [f"{name} is {shown[name]:.4g}, allowed {limits[name]:.4g}" for name in limits if ratios[name] > 1]
    return Verdict("fail" if over else "pass", NAME, "; ".join(over), shown, limits, max(ratios.values()))


def _parts(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements as flat float64; a complex number is two."""
    real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return real.reshape(-1).double()


def _failed(reason: str) -> Verdict:
    return Verdict("fail", NAME, reason, margin=math.inf)

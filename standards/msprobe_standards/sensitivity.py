"""Sensitivity: the target may err about as much as golden moves where its inputs move by one rounding unit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import torch

from msprobe_standards.dtypes import float_format
from msprobe_standards.exemption import Excused
from msprobe_standards.metrics import measure
from msprobe_standards.protocol import Standard, within

if TYPE_CHECKING:
    from msprobe_standards.metrics import Metrics
    from msprobe_standards.verdict import Verdict

Moved: TypeAlias = "Callable[[], Sequence[object]] | Sequence[object]"
"""Golden results for inputs moved by one rounding unit, one per draw, or a function that computes them."""

# docs/standards-reference.md, "Sensitivity" and "Where the constants come from".
# As in `benchmark`: 8 standard deviations of the ratio of two root mean squares of n normal errors, of 1/√n each.
_SMALL_SAMPLE = 8.0
# Twice the floor of float32. Of LAPACK's float32 results (10 functions, condition 10 to 1e5) most lie within 4 to 16,
# the worst within 80; the baseline explains the others.
_DOUBTFUL = 16.0
# The bits that a coarser format lacks: TF32 has 10 of the 23 of float32's significand, float32 23 of float64's 52.
_COARSE_BITS = {torch.float32: (torch.int32, 13), torch.float64: (torch.int64, 29)}


@dataclass(frozen=True)
class Sensitivity(Standard):
    """Compares the target's errors with the movement of golden's outputs when its inputs move by one rounding unit.

    A backward stable algorithm returns the right result for inputs a few roundings away from its own; how far such
    results may be from golden is the call's own conditioning, and golden itself shows it. Errors are relative to
    max(|golden|, mean |golden|) and counted in unit roundoffs u of the target's dtype. With the greatest of the draws'
    numbers, or ``floor`` where that is greater,

    * root mean square: ``max_rms_ratio`` times, and (1 + 8 / sqrt(n)) wider for n elements;
    * greatest error: ``max_error_ratio`` times.

    So a well-conditioned call gets a few units. Where golden could not be moved, or moves to other NaN and inf, nothing
    is known of the conditioning and the floor alone counts; the reason says so.
    Source: the thresholds of TTrace (Jiang et al., 2025), which perturbs a whole training step, here per call.

    Args:
        max_rms_ratio: The allowed ratio of the root mean squares.
        max_error_ratio: The allowed ratio of the greatest errors.
        floor: The least movement that counts, in unit roundoffs.
    """

    max_rms_ratio: float = 4.0
    max_error_ratio: float = 10.0
    floor: float = 1.0

    name: ClassVar[str] = "sensitivity"
    wanted: ClassVar[frozenset[str]] = frozenset({"rms_scaled_error", "max_scaled_error"})

    def decide(self, metrics: Metrics, baseline_metrics: Metrics | None) -> Verdict:
        """Judge as if the call were perfectly conditioned."""
        return self._judge(metrics, rms=0.0, greatest=0.0)

    def weighed(self, verdict: Verdict, metrics: Metrics, moved: Callable[[float], Sequence[Metrics]]) -> Verdict:
        """Judge by what golden moves."""
        if metrics["nonfinite_mismatch"]:
            return verdict
        draws = _comparable(moved(1.0))
        if not draws:
            note = "judged as well-conditioned: golden could not be computed for moved inputs"
            return replace(verdict, reason=f"{verdict.reason}; {note}")
        return self._judge(metrics, _greatest(draws, "rms_scaled_error"), _greatest(draws, "max_scaled_error"))

    def _judge(self, metrics: Metrics, rms: float, greatest: float) -> Verdict:
        limits = {
            "rms_scaled_error": self.max_rms_ratio
            * (1 + _SMALL_SAMPLE / math.sqrt(metrics.numel))
            * max(rms, self.floor),
            "max_scaled_error": self.max_error_ratio * max(greatest, self.floor),
        }
        return within(self.name, metrics, limits)


@dataclass(frozen=True)
class ExcusedBySensitivity(Excused):
    """Judges by ``inner``, and passes a failure that the call's own conditioning explains.

    That is where the greatest absolute error and every number that broke its limit are at most those of golden for
    inputs moved by ``units`` rounding units, extrapolated from one. A wrong NaN or inf is never excused, nor is
    anything by draws that have other NaN or inf than golden, nor a target whose values are all those of a coarser
    format: conditioning explains errors and no lost bits.

    Args:
        inner: The standard that judges.
        units: By how many rounding units the inputs may move.
    """

    units: float = 16.0  # docs/standards-reference.md, "Where the constants come from"

    def weighed(self, verdict: Verdict, metrics: Metrics, moved: Callable[[float], Sequence[Metrics]]) -> Verdict:
        """Weigh a failure against what golden moves by."""
        verdict = super().weighed(verdict, metrics, moved)
        if verdict.outcome != "fail" or metrics["nonfinite_mismatch"]:
            return verdict
        draws = _comparable(moved(self.units))
        broken = [name for name, limit in verdict.limits.items() if not verdict.metrics[name] <= limit]
        if not draws or any(abs(metrics[name]) > _greatest(draws, name) for name in (*broken, "max_abs_err")):
            return verdict
        numbers = ", ".join(f"{name} up to {_greatest(draws, name):.4g}" for name in broken)
        reason = f"excused, {self.units:g} roundings of the inputs explain {numbers}: {verdict.reason}"
        return replace(verdict, outcome="pass", reason=reason, margin=1.0)


def _comparable(draws: Sequence[Metrics]) -> Sequence[Metrics]:
    """Return the draws if golden moved to finite places in all of them, else none: infinite errors excuse anything."""
    return () if any(draw["nonfinite_mismatch"] for draw in draws) else draws


def _greatest(draws: Sequence[Metrics], name: str) -> float:
    return max(abs(draw[name]) for draw in draws)


def moved_by(golden: torch.Tensor, moved: torch.Tensor, units: float) -> torch.Tensor:
    """Return where golden would lie had its inputs moved by so many rounding units, as it lies at ``moved`` for one."""
    # Float8 has no arithmetic of its own.
    wide = torch.float32 if golden.dtype.itemsize == 1 else golden.dtype
    start, end = golden.to(wide), moved.to(wide)
    return torch.where(end == start, start, start + units * (end - start))


def doubtful(
    target: torch.Tensor, golden: torch.Tensor, baseline: torch.Tensor | None, dtype: torch.dtype, dims: int
) -> list[tuple[int, ...]]:
    """Return at which indices of its first ``dims`` dimensions a target errs by more than few roundings.

    That is by more than twice what the baseline errs by there, and than 16 roundings of golden's greatest value there.
    """
    wide = torch.complex128 if golden.is_complex() else torch.float64

    def greatest(values: torch.Tensor) -> torch.Tensor:
        finite = values.abs().where(values.isfinite(), 0.0)
        return finite.reshape(*golden.shape[:dims], -1).amax(-1)

    right = golden.to(wide)
    allowed = _DOUBTFUL * float_format(dtype).unit_roundoff * greatest(right)
    if baseline is not None:
        allowed = torch.maximum(allowed, 2 * greatest(baseline.to(wide) - right))
    return [tuple(at) for at in (greatest(target.to(wide) - right) > allowed).nonzero().tolist()]


def has_lost_bits(target: torch.Tensor, golden: torch.Tensor) -> bool:
    """Return whether all values have the significand of a coarser format, and golden's rounded to their dtype have not.

    That format is TF32, which holds those of bfloat16 and float16 too, for float32, and float32 for float64.
    """
    return _is_coarse(target) and not _is_coarse(golden.to(target.dtype))


def _is_coarse(values: torch.Tensor) -> bool:
    parts = torch.view_as_real(values.resolve_conj().resolve_neg()) if values.is_complex() else values
    if parts.dtype not in _COARSE_BITS:
        return False
    whole, bits = _COARSE_BITS[parts.dtype]
    return not (parts.contiguous().view(whole) & ((1 << bits) - 1)).any()


def amplification(golden: torch.Tensor, moved: Sequence[torch.Tensor], unit: float) -> float:
    """Return how many times a call amplifies the rounding of its inputs: a condition number, as golden shows it.

    The output's movement is the root mean square of |moved - golden| / max(|golden|, mean |golden|), the greatest among
    the draws.

    Args:
        golden: The golden result, a floating-point or complex tensor.
        moved: Golden results, of the same shape, for inputs that moved by ``unit``; one per draw.
        unit: The movement of the inputs, relative to themselves.

    Returns:
        The output's movement in units; infinite where NaN or inf move.
    """
    roundoff = float_format(golden.dtype).unit_roundoff
    draws = [measure(draw, golden, only={"rms_scaled_error"}) for draw in moved]
    return _greatest(draws, "rms_scaled_error") * roundoff / unit

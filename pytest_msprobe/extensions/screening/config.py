"""Whether evidence on products is enough to pass them without computing them again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import torch

from msprobe_standards import Standard, Verdict, measure
from msprobe_standards.benchmark import Benchmark
from msprobe_standards.exemption import Excused
from pytest_msprobe.extensions.screening.residuals import Evidence
from pytest_msprobe.results.result import OutputResult
from pytest_msprobe.results.screened import ScreenedOutput

#: Dtypes whose rounding is coarse enough to be distinguished from that of float64, in which residuals are computed.
SCREENED_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class Screening:
    """Whether an output is cleared, and what shows it.

    ``verdict`` is that of the standard on the elements that were computed exactly, a pass where the output is cleared;
    ``why_not`` says what keeps it from that, empty where nothing does.
    """

    evidence: Evidence
    verdict: Verdict | None
    why_not: str

    @property
    def is_cleared(self) -> bool:
        """Whether the whole output passes."""
        return not self.why_not


@dataclass(frozen=True, slots=True)
class ScreenedPass:
    """The verdict on an output, and what was seen of one that was cleared; None of one that was computed exactly.

    ``sample`` are elements, the greatest one among them.
    """

    result: OutputResult
    sample: torch.Tensor
    seen: ScreenedOutput | None = None


def is_result(value: Any, shape: tuple[int, ...], dtype: torch.dtype) -> TypeGuard[torch.Tensor]:
    """Return whether something is a dense tensor of this shape and dtype."""
    is_dense = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return is_dense and tuple(value.shape) == shape and value.dtype == dtype


def benchmark_of(standard: Standard) -> Benchmark | None:
    """Return what a standard judges by if a sample of the elements estimates its numbers; None for any other."""
    inner = standard
    while isinstance(inner, Excused):
        inner = inner.inner
    return inner if isinstance(inner, Benchmark) else None


def is_screenable(standard: Standard) -> bool:
    """Return whether a standard judges by numbers that a sample of the elements estimates."""
    return benchmark_of(standard) is not None


def screening(evidence: Evidence, standard: Standard) -> Screening:
    """Hold evidence against the limits of its residuals, and its exact elements against the standard.

    Elements are measured against the scale of the whole output, and held to the limits of its number of elements. What
    would need a baseline is not cleared.
    """
    if not evidence.is_finite:
        return Screening(evidence, None, "there are NaN or inf elements")
    if not evidence.scale:
        return Screening(evidence, None, "the result is zero throughout")
    kind, worst = max(evidence.residuals.items(), key=lambda item: item[1].share)
    if worst.share > 1:
        why = f"the residual of a {kind} is {worst.share**0.5:.3g} times its limit ({worst.where})"
        return Screening(evidence, None, why)
    dtype = evidence.target.dtype
    metrics = measure(
        evidence.target, evidence.golden, only=standard.wanted, bounds=standard.bounds(dtype), scale=evidence.scale
    )
    verdict = standard.settled(replace(metrics, numel=evidence.numel))
    if verdict is None or verdict.outcome != "pass":
        return Screening(evidence, verdict, "the elements that were computed exactly do not pass without a baseline")
    return Screening(evidence, verdict, "")

"""The check of msprobe's MindSpore tool: cosine and greatest absolute error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from msprobe_standards.protocol import Standard, nonfinite
from msprobe_standards.reasons import at_worst
from msprobe_standards.verdict import Verdict

if TYPE_CHECKING:
    from msprobe_standards.metrics import Metrics


@dataclass(frozen=True)
class MindsporeCheck(Standard):
    """The cosine is above ``min_cosine`` and the greatest absolute error below ``max_abs_err``.

    msprobe's code has 0.001 for the latter, its manual 0.0001; the default is what the tool does (docs/standards.md,
    "mindspore-1.2"). The cosine counts as
    right where it is not defined: with zeros on one side msprobe's formula, (1e-8 + a b) / (1e-8 + |a| |b|), gives 1.
    """

    min_cosine: float = 0.99
    max_abs_err: float = 0.001

    name: ClassVar[str] = "mindspore_check"
    wanted: ClassVar[frozenset[str]] = frozenset({"cosine_sim", "max_rel_error"})
    exact_passes: ClassVar[bool] = False

    def decide(self, metrics: Metrics, baseline_metrics: Metrics | None) -> Verdict:
        """Judge the cosine, then the error; the relative error is shown only, as msprobe does."""
        if metrics["nonfinite_mismatch"]:
            return nonfinite(self.name, metrics, {})
        cosine, error = metrics["cosine_sim"], metrics["max_abs_err"]
        cosine = 1.0 if math.isnan(cosine) else cosine
        measured = {"cosine_sim": cosine, "max_abs_err": error, "max_rel_error": metrics["max_rel_error"]}
        limits = {"cosine_sim": self.min_cosine, "max_abs_err": self.max_abs_err}
        margin = max(_share(1 - cosine, 1 - self.min_cosine), _share(error, self.max_abs_err))
        problems = []
        if not cosine > self.min_cosine:
            problems.append(f"cosine_sim {cosine:.6g} (above {self.min_cosine:g} allowed)")
        if not error < self.max_abs_err:
            problems.append(f"max_abs_err {error:.4g} (below {self.max_abs_err:g} allowed)")
        if not problems:
            return Verdict("pass", self.name, "", measured, limits, min(margin, 1.0))
        reason = f"{'; '.join(problems)}{at_worst(metrics)}"
        return Verdict("fail", self.name, reason, measured, limits, max(margin, 1.0))


def _share(value: float, limit: float) -> float:
    if limit > 0:
        return value / limit
    return 0.0 if value <= limit else math.inf

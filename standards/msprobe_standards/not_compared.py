"""Rule ``not_compared``: values that a policy leaves out on purpose, and reports as such."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from msprobe_standards.protocol import Standard
from msprobe_standards.verdict import Verdict

if TYPE_CHECKING:
    from msprobe_standards.metrics import Metrics


@dataclass(frozen=True)
class NotCompared(Standard):
    """Skips every output; msprobe's comparison with a recorded baseline does so for float64 and complex outputs."""

    name: ClassVar[str] = "not_compared"
    wanted: ClassVar[frozenset[str]] = frozenset({"max_abs_err"})
    exact_passes: ClassVar[bool] = False
    judges_integers: ClassVar[bool] = True

    def decide(self, metrics: Metrics, baseline_metrics: Metrics | None) -> Verdict:
        """Return the skip."""
        return Verdict("skip", self.name, f"the policy does not compare {metrics.dtype} outputs")

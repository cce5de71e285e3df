"""What a free benchmark amounted to, in words."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from msprobe_hooks.recording.summary import Summary

_NAMED = 10


@dataclass(slots=True)
class BenchmarkSummary(Summary):
    """Counts of one benchmark: calls that were perturbed, by API those that changed too much, by reason the others."""

    perturbed: int = 0
    fixed: int = 0
    inconsistent: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was perturbed."""
        return self.perturbed == 0

    def __str__(self) -> str:
        if not self.started:
            return f"no call was perturbed: {self.why_empty()}"
        changed = ", ".join(f"{api} ({count})" for api, count in self.inconsistent.most_common(_NAMED))
        lines = [f"{self.perturbed} calls were made again with perturbed inputs in {self.seconds:.1f} s"]
        if self.fixed:
            lines.append(f"the results of {self.fixed} were put in the place of the program's")
        lines.append(f"{self.inconsistent.total()} changed too much" + (f": {changed}" if changed else ""))
        lines += [f"{count} left out: {reason}" for reason, count in self.left_out.most_common()]
        return "; ".join([*self.stopped(), *lines, *self.notes()])

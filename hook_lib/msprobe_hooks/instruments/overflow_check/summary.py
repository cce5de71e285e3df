"""What a look for overflow amounted to, in words."""

from __future__ import annotations

from dataclasses import dataclass, field

from msprobe_hooks.recording.summary import Summary


@dataclass(slots=True)
class OverflowSummary(Summary):
    """Counts of one recording, with the records in which inf and nan were looked for, and those in which they arise."""

    looked_at: int = 0
    overflows: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was recorded, nor looked at."""
        return self.records == 0 and self.looked_at == 0

    def __str__(self) -> str:
        if not self.looked_at:
            # A dataclass with slots is made anew, which a bare super() does not know of.
            return Summary.__str__(self)
        where = f", written into {', '.join(map(str, self.folders))}" if self.folders else ""
        found = f"inf or nan arises in {', '.join(self.overflows)}{where}" if self.overflows else "no inf or nan arises"
        looked_at = f"{found}: {self.looked_at} records were looked at in {self.seconds:.1f} s"
        return "; ".join([*self.stopped(), looked_at, *self.notes()])

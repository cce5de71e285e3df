"""What a dump of kernels amounted to, in words."""

from __future__ import annotations

from dataclasses import dataclass, field

from msprobe_hooks.recording.summary import Summary


@dataclass(slots=True)
class KernelSummary(Summary):
    """Counts of one recording, the records whose kernels were dumped, and by record why they were not."""

    dumped: list[str] = field(default_factory=list)
    not_dumped: dict[str, str] = field(default_factory=dict)

    def notes(self) -> list[str]:
        """Return of which record the kernels were dumped, and what is to be known of what is missing."""
        # Super without arguments finds another class where a dataclass has slots.
        return [
            *(f"the kernels of {name} were dumped by the card's library" for name in dict.fromkeys(self.dumped)),
            *(f"the kernels of {name} were not dumped: {reason}" for name, reason in self.not_dumped.items()),
            *Summary.notes(self),
        ]

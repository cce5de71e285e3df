"""Outcome of feeding: counts, and a sentence."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from msprobe_hooks.messages import counted, listed

_SHOWN = 6


@dataclass(slots=True)
class Fed:
    """Outcome of feeding.

    ``calls`` counts the fed calls by the module's path; ``kept`` says what the program kept of its own, and why, each
    with how often; ``converted`` counts tensors that had another dtype in the dump; ``differences`` has, by place, how
    far what was replaced lay from what replaced it, as a fraction of the greatest value; ``unmet`` are lines on the
    modules that were never fed, known at the end; ``source`` is the recording that the inputs came from.
    """

    source: str
    calls: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    converted: Counter[str] = field(default_factory=Counter)
    differences: dict[str, float] = field(default_factory=dict)
    unmet: list[str] = field(default_factory=list)
    own_step: int = 0

    def step(self) -> None:
        """End a step, where nothing records: calls are counted anew, and inputs come from the dump's next step."""
        self.own_step += 1

    def note_difference(self, where: str, difference: float) -> None:
        """Keep how far the tensor in a place lay from the one that replaced it, the greatest of all calls."""
        if difference > self.differences.get(where, 0.0):
            self.differences[where] = difference

    @property
    def is_partial(self) -> bool:
        """Return whether something was not fed."""
        return bool(self.kept or self.unmet or not self.calls)

    def __str__(self) -> str:
        calls = counted(self.calls.total(), "call")
        of = counted(len(self.calls), "module")
        lines = [f"fed {calls} of {of} from {self.source}" if self.calls else f"nothing was fed from {self.source}"]
        for words, notes in (("converted", self.converted), ("not fed", self.kept)):
            if notes:
                texts = (text if count == 1 else f"{text} ({count} times)" for text, count in notes.items())
                lines.append(f"{words}: {listed(texts, _SHOWN)}")
        if self.differences:
            first = next(iter(self.differences))
            worst = max(self.differences, key=self.differences.__getitem__)
            places = ", most ".join(
                f"{where} by {self.differences[where]:.1e}" for where in dict.fromkeys((first, worst))
            )
            tensors = counted(len(self.differences), "replaced tensor")
            lines.append(f"{tensors} differed from the recorded, first {places} of the greatest value")
        return "; ".join([*lines, *self.unmet])

"""State of a failing case (saved or not) in results, failure texts and the summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from msprobe_hooks.messages import format_size
from pytest_msprobe.results.result import DirectionResult

_SAVED = "saved"


@dataclass(frozen=True, slots=True)
class SavedCase:
    """Outcome of saving a failing case: its folder and size in bytes, what was left out, or why it failed."""

    folder: str = ""
    size: int = 0
    left_out: tuple[str, ...] = ()
    problem: str = ""

    def __str__(self) -> str:
        if self.problem:
            return f"The failing case was not saved: {self.problem}"
        left_out = f" without {', '.join(self.left_out)}" if self.left_out else ""
        return f"Saved ({format_size(self.size)}{left_out}): {self.folder}"


def with_saved(result: DirectionResult, saved: SavedCase) -> DirectionResult:
    """Return a result with a saved case, which ends its failure text."""
    cases = [*result.extras.get(_SAVED, ()), msgspec.to_builtins(saved)]
    return replace(result, notes=(*result.notes, str(saved))).with_extra(_SAVED, cases)


def saved_folder(extras: Mapping[str, Any]) -> str:
    """Return the folder of the first case that was saved of a record, empty where none was."""
    folders = (msgspec.convert(plain, SavedCase).folder for plain in extras.get(_SAVED, ()))
    return next(filter(None, folders), "")


class SavedTally:
    """Counts saved cases for the summary."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._bytes = 0

    def add(self, extras: Mapping[str, Any]) -> None:
        """Count the cases of one record."""
        for plain in extras.get(_SAVED, ()):
            saved = msgspec.convert(plain, SavedCase)
            self._bytes += saved.size
            left_out = f" without {', '.join(saved.left_out)}: no space left" if saved.left_out else ""
            place = f"saved in {Path(saved.folder).parent}{left_out}"
            self._counts[f"not saved: {saved.problem}" if saved.problem else place] += 1

    def lines(self) -> list[str]:
        """Return the summary's lines."""
        if not self._counts:
            return []
        head = f"failing cases ({format_size(self._bytes)}, for pytest-msprobe replay):"
        return [head, *(f"  {count} {text}" for text, count in self._counts.most_common())]

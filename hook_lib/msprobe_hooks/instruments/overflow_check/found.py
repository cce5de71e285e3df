"""What was found: a call in which inf or nan arises."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from msprobe_hooks.dump.scenes import Finding, Place


@dataclass(frozen=True, slots=True)
class Overflow:
    """A call in which inf or nan arises: its record, what it shows, and where the program made it, innermost first."""

    name: str
    finding: Finding
    inputs: tuple[Place, ...]
    frames: tuple[str, ...]
    folder: Path

    def __str__(self) -> str:
        places = ", ".join(place.path for place in self.finding.outputs)
        origin = next((f", called at {' '.join(frame.removeprefix('File ').split())}" for frame in self.frames), "")
        return f"{self.name}: {self.finding.scene.words} ({places}){origin}; its tensors are in {self.folder}"

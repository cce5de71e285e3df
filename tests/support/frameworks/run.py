"""One run of a framework's training: plain, recorded, or recorded with a fault."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from msprobe_hooks import PrecisionDebugger

Kind = Literal["plain", "recorded", "faulty"]
KINDS: tuple[Kind, ...] = ("plain", "recorded", "faulty")


@dataclass
class Run:
    """What a training calls: as a user's lines call the debugger, and nothing where the run is plain."""

    kind: Kind
    #: Where the recording and the outcome are written.
    folder: Path
    rank: int = 0
    losses: list[float] = field(default_factory=list)

    def plant(self, weight: Tensor) -> None:
        """Change one element of a weight by 0.1, in the faulty run alone."""
        if self.kind == "faulty":
            with torch.no_grad():
                weight.view(-1)[3] += 0.1

    def start(self, model: nn.Module | list[nn.Module]) -> None:
        """Record the step that begins, at level mix with all tensors."""
        if self.kind != "plain":
            PrecisionDebugger(dump_path=self.folder / self.kind, level="mix", task="tensor")
            PrecisionDebugger.start(model)

    def end_step(self) -> None:
        """End the step."""
        if self.kind != "plain":
            PrecisionDebugger.stop()
            PrecisionDebugger.step()

    def write_outcome(self, parameters: list[Tensor]) -> None:
        """Write the losses and a checksum of what was trained, for `outcome`."""
        digest = hashlib.md5(b"".join(one.detach().float().numpy().tobytes() for one in parameters))
        outcome = {"losses": [loss.hex() for loss in self.losses], "parameters": digest.hexdigest()}
        _outcome_file(self.folder, self.kind, self.rank).write_text(json.dumps(outcome))


def outcome(folder: Path, kind: Kind, rank: int = 0) -> Any:
    """Return the losses of a run's rank, to the bit, and the checksum of its parameters."""
    return json.loads(_outcome_file(folder, kind, rank).read_text())


def _outcome_file(folder: Path, kind: Kind, rank: int) -> Path:
    return folder / f"{kind}{rank}.json"

"""Dumps of two runs to compare: recorded ones, and small ones that a test writes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msprobe_hooks.dump.reader import Dump, read_dump
from pytest_msprobe.modes.compare.dump_pair import DumpPair
from pytest_msprobe.modes.compare.judging.policy import load_policy
from tests.support.dumps.archives import unpack
from tests.support.dumps.dump_files import Json, write_dump

RECORDED = Path(__file__).parents[2] / "data" / "compared_runs.tar.xz"


def unpack_runs(folder: Path) -> Path:
    """Unpack recorded dumps below a folder and return theirs: a folder per model, with what is true of its runs."""
    unpack(RECORDED, folder)
    return folder / "compared_runs"


@dataclass(frozen=True)
class Runs:
    """Writes the dumps of a target and a golden run below one folder."""

    folder: Path

    def write(self, side: str, records: Json, **top: Any) -> Path:
        return write_dump(self.folder / side, records, **top)

    def both(self, target: Json, golden: Json, **top: Any) -> tuple[Path, Path]:
        return self.write("target", target, **top), self.write("golden", golden, **top)

    def dumps(self, target: Json, golden: Json, **top: Any) -> tuple[Dump, Dump]:
        ours, theirs = self.both(target, golden, **top)
        return read_dump(ours), read_dump(theirs)

    def pair(self, target: Json, golden: Json, policy: str = "default", **options: Any) -> DumpPair:
        ours, theirs = self.dumps(target, golden)
        return DumpPair(0, ours, theirs, policy=load_policy(policy), **options)

    def construct(self, side: str, parents: Json) -> None:
        (self.folder / side / "construct.json").write_text(json.dumps(parents))

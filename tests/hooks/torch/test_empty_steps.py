"""The step that a loop ending in ``step`` begins, and in which nothing runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from msprobe_hooks import record


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_an_empty_last_step_is_not_kept(tmp_path: Path, level: str) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3))
    with record(tmp_path / "run", level=level, model=model) as session:
        for _ in range(2):
            model(torch.ones(2, 3))
            session.step()
    assert sorted(folder.name for folder in (tmp_path / "run").iterdir()) == ["step0", "step1"]
    assert [folder.parent.name for folder in session.summary.folders] == ["step0", "step1"]


def test_a_recording_of_nothing_keeps_its_only_step(tmp_path: Path) -> None:
    with record(tmp_path / "run", level="L1"):
        pass
    assert (tmp_path / "run" / "step0" / "rank" / "dump.json").is_file()

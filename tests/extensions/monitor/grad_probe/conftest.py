"""A model under the gradient probe."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from msprobe_hooks import PrecisionDebugger
from tests.support.fixtures.recordings import records
from tests.support.trainings.probing import Monitor, finish


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[Monitor]:
    """Monitor a model with a configuration of msprobe; return the folder of rank 0."""

    def begin(model: Any, optimizer: Any = None, *, step: Any = (), dump_path: str = "run", **section: Any) -> Path:
        path = tmp_path / "config.json"
        content = {"task": "grad_probe", "dump_path": str(tmp_path / dump_path), "step": list(step), "rank": []}
        path.write_text(json.dumps({**content, "grad_probe": section}))
        PrecisionDebugger(path).monitor(model, optimizer)
        return tmp_path / dump_path / "rank0"

    yield begin
    finish()


__all__ = ["records"]

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fixtures.comparisons import tmp_path
from tests.support.fixtures.recordings import records
from tests.support.trainings.fed import Model, batch, recording

__all__ = ["records", "tmp_path"]


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """Two micro-batches in one step, and another batch in the next."""
    model = Model()
    with recording(tmp_path / "golden", model) as session:
        model(batch(0))
        model(batch(1))
        session.step()
        model(batch(2))
    return tmp_path / "golden"

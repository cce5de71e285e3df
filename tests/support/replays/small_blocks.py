"""Blocks so small that the calls of a test are cut."""

from __future__ import annotations

import pytest

from pytest_msprobe.engine.replay import partition
from pytest_msprobe.engine.replay.trials import memory_budget


@pytest.fixture(scope="module", autouse=True)
def small_blocks() -> object:
    """Let small calls be cut, into blocks of a few rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_budget, "_ALWAYS_FREE", 0)
        patch.setattr(partition, "_BLOCK", 20000)
        patch.setattr(partition, "_LESS", 1)
        yield

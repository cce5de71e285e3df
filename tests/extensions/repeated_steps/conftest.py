"""Fixtures for steps that are computed twice."""

from __future__ import annotations

import sys

import pytest

from tests.support.fixtures.recordings import records

__all__ = ["records"]


@pytest.fixture(autouse=True)
def _nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what tests before this one have compiled: of a process that compiles, calls are not compared."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None:
        monkeypatch.setitem(dynamo.counters["frames"], "ok", 0)

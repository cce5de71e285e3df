from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.fixtures.recordings import records

__all__ = ["records"]


@pytest.fixture
def debugger() -> Iterator[Callable[..., Any]]:
    """Make the process's debugger, and end it after the test."""
    from msprobe_hooks import PrecisionDebugger

    yield PrecisionDebugger
    if PrecisionDebugger._instance is not None:
        PrecisionDebugger._instance._finish()

"""The configuration of a debugger that probes gradients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from msprobe_hooks import PrecisionDebugger
from tests.support.trainings.probing import finish


@pytest.fixture
def debugger() -> Iterator[type[PrecisionDebugger]]:
    """Make the process's debugger, and end it after the test."""
    yield PrecisionDebugger
    finish()


def test_a_gradient_probe_has_a_configuration_too(tmp_path, debugger):
    debug = debugger(dump_path=tmp_path / "d", task="grad_probe")
    debug.config.dump_path = tmp_path / "e"
    assert (debug.config.dump_path, debug.config.task, debug.service.current_iter) == (
        str(tmp_path / "e"),
        "grad_probe",
        0,
    )

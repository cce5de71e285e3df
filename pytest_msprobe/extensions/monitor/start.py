"""Fixture and marker ``msprobe_monitor``, known at every start of pytest. PYTEST_DONT_REWRITE."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_msprobe.run.session_needs import start_session_of_test

if TYPE_CHECKING:
    from pytest_msprobe.extensions.monitor.monitor_fixture import TrainingMonitor


@pytest.fixture
def msprobe_monitor(request: pytest.FixtureRequest, tmp_path: Path) -> TrainingMonitor:
    """Watch the trainings of this test, each in a ``with`` of its own that fails the test where one goes wrong."""
    start_session_of_test(request)
    from pytest_msprobe.extensions.monitor.monitor_fixture import monitor_of

    return monitor_of(request.node, tmp_path / "msprobe_monitor")


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marker."""
    config.addinivalue_line(
        "markers",
        "msprobe_monitor(**options): judge trainings that msprobe_monitor watches in this test by these options, "
        'as in msprobe_monitor(dtype="float16", every=10)',
    )


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test whose training was to be watched and was not."""
    done = yield
    if item.get_closest_marker("msprobe_monitor") or "msprobe_monitor" in getattr(item, "fixturenames", ()):
        from pytest_msprobe.extensions.monitor.monitor_fixture import require_training

        require_training(item)
    return done

"""Fixture ``msprobe_live``, known at every start of pytest. PYTEST_DONT_REWRITE, as for the whole package."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_msprobe.run.session_needs import start_session_of_test

if TYPE_CHECKING:
    from pytest_msprobe.extensions.live_checks.live_fixture import TestLive


@pytest.fixture
def msprobe_live(request: pytest.FixtureRequest) -> TestLive:
    """Return what judges calls while they run: those inside of a ``with`` over a call of it."""
    start_session_of_test(request)
    from pytest_msprobe.extensions.live_checks.live_fixture import TestLive

    return TestLive(request)

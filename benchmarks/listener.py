"""A plugin that listens to the phases of an item and does nothing, as many others do something."""

from __future__ import annotations

import pytest


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Hear of an item's setup."""


def pytest_runtest_call(item: pytest.Item) -> None:
    """Hear of its call."""


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Hear of its teardown."""

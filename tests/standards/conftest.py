from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from msprobe_standards import registry
from tests.support.replays.oracle import OracleCase, oracle_cases


@pytest.fixture(scope="session")
def oracle() -> Callable[[str], list[OracleCase]]:
    """Return a function from a standard's name to its oracle cases."""
    return oracle_cases


@pytest.fixture
def own_registry() -> Iterator[None]:
    """Take back the standards that a test registers."""
    before = dict(registry.STANDARDS._factories)
    yield
    registry.STANDARDS._factories.clear()
    registry.STANDARDS._factories.update(before)

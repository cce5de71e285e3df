from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.replays.oracle import OracleCase, oracle_cases


@pytest.fixture(scope="session")
def oracle() -> Callable[[str], list[OracleCase]]:
    """Return a function from a standard's name to its oracle cases."""
    return oracle_cases

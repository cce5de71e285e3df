from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_msprobe.extensions.communication.exchanges import Exchange
from pytest_msprobe.extensions.communication.judging import judge_exchange
from pytest_msprobe.extensions.communication.messages import between, read_step, short_name
from pytest_msprobe.results.result import DirectionResult
from tests.support.dumps.ranks import step


@pytest.fixture(scope="session")
def judge() -> Callable[..., dict[str, DirectionResult]]:
    """Judge the records of ranks 0, 1 ... and return results by the first rank's number and name."""

    def judge(*ranks: Any) -> dict[str, DirectionResult]:
        known = read_step(step(*ranks))
        return {_name(one): judge_exchange(one.lead.name, one, known) for one in known.exchanges}

    return judge


def _name(exchange: Exchange) -> str:
    lead = exchange.lead
    return f"{lead.rank}:{short_name(lead)}" + (f" {between(exchange)}" if len(lead.ends) > 1 else "")

"""Between which numbers the values of a series lie: what journals keep of a run's series."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pytest_msprobe.results.result import decode_extra

#: The extra of a result that has it.
SPREAD = "spread"


class Spread(msgspec.Struct, frozen=True):
    """The least, the middle and the greatest finite value of a series of one rank."""

    rank: int
    least: float
    median: float
    greatest: float


def spread_of(extras: Mapping[str, Any]) -> Spread | None:
    """Return what a result holds of a series' values; None of another, or one without finite values."""
    return decode_extra(extras, SPREAD, Spread)

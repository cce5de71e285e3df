"""The options that run calls again: repeated, or on parts of the batch; nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pytest_msprobe.run.option_fields import add_fields, number, option


@dataclass(frozen=True, slots=True)
class RerunOptions:
    """How often a call runs, None for once; whether parts of its batch run."""

    repeat: int | None = option(
        "--msprobe-repeat",
        "run each call N times on the device, 2 or more, and fail calls whose results differ (default: once)",
        metavar="N",
        read=number(int, "a number of runs, 2 or more", lambda times: times >= 2),
    )
    batch_invariant: bool = option(
        "--msprobe-batch-invariant",
        "run each call whose rows are independent on single rows and other parts of its batch too, and fail calls "
        "whose rows then have other bits (default: the whole batch only)",
    )


def add_options(group: pytest.OptionGroup) -> None:
    """Add the options to the group."""
    add_fields(group, RerunOptions)

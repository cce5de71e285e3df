"""What the summary of a run on a device counts beside verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_msprobe.modes.check.baselines.tally import UnusedTensorsTally
from pytest_msprobe.modes.check.cases.saved import SavedTally
from pytest_msprobe.modes.check.explore.tally import ExploredTally

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_msprobe.reports.summary import Tally


def tallies() -> Sequence[Tally]:
    """Return new tallies, in the order of the summary."""
    return ExploredTally(), UnusedTensorsTally(), SavedTally()

"""Exploration around a judged record, as a step after the verdict."""

from __future__ import annotations

import time
from dataclasses import replace

from pytest_msprobe.extensions.explore.explore import explore
from pytest_msprobe.extensions.explore.explored_tally import EXPLORED
from pytest_msprobe.extensions.explore.minimal_example import smallest_input
from pytest_msprobe.extensions.explore.options import ExploreOptions
from pytest_msprobe.extensions.explore.reproducer import explored_text
from pytest_msprobe.modes.check.cases.save import SaveFailure
from pytest_msprobe.modes.check.cases.saved_case import with_saved
from pytest_msprobe.modes.check.follow_up import Judged
from pytest_msprobe.results.result import DirectionResult


class Explore:
    """Tries inputs around the recorded one, and saves the one that fails where ``save`` is given."""

    def __init__(self, options: ExploreOptions, timeout: float | None, save: SaveFailure | None) -> None:
        self._options = options
        self._timeout = timeout
        self._save = save

    def __call__(self, judged: Judged) -> DirectionResult:
        """Explore; the result is that of an input that fails, where the recorded one does not."""
        recorded = judged.result
        if recorded.verdict.outcome == "skip":
            return recorded
        options = self._options.within(self._timeout, time.monotonic() - judged.started)
        body = judged.dump.body(judged.replay.call.forward.name)
        exploration = explore(judged.replay, body, recorded, options)
        finding = exploration.finding
        if finding is None:
            return recorded.with_extra(EXPLORED, exploration.judged)
        failed = recorded.verdict.outcome == "fail"
        note = explored_text(finding, exploration.judged, recorded_failed=failed)
        noted = replace(finding.result, notes=(note,))
        result = replace(recorded, notes=(note, *recorded.notes)) if failed else noted
        extras = {EXPLORED: exploration.judged, **smallest_input(finding, judged.direction)}
        result = replace(result, extras={**result.extras, **extras})
        if self._save is None:
            return result
        return with_saved(result, self._save.saved(judged.dump, finding.replay, noted, finding.body))

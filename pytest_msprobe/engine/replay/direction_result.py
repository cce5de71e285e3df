"""One direction judged: its worst output decides, and what cannot be judged is told with its reason."""

from __future__ import annotations

import time
from collections.abc import Callable

from msprobe_standards import Verdict
from pytest_msprobe.devices.remote.link import LinkError
from pytest_msprobe.engine.replay.subject import CheckError, TargetError
from pytest_msprobe.engine.values.failures import is_out_of_memory
from pytest_msprobe.results.exceptions import describe_error
from pytest_msprobe.results.outcomes import Breakdown
from pytest_msprobe.results.result import DirectionResult, OutputResult, broken, decided
from pytest_msprobe.results.skips import Skip, SkipReason


class NoRuleError(Exception):
    """The policy has no rule for an output."""


def result_of(
    record: str, judged: Callable[[], list[OutputResult]], raised: list[BaseException] | None = None
) -> DirectionResult:
    """Judge one direction and let its worst output decide; what cannot be judged is a skip with its reason.

    The list ``raised`` gets the exception of the checked function, or of golden, that the result is about.
    """
    started = time.perf_counter()
    try:
        outputs = judged()
    except Skip as skip:
        if skip.reason in (SkipReason.REJECTED_INPUTS, SkipReason.NO_GOLDEN):
            _keep_cause(skip, raised)
        return DirectionResult(record, Verdict("skip", "", str(skip)), skip=skip.reason)
    except NoRuleError as error:
        return broken(record, Breakdown.POLICY, str(error))
    except CheckError as error:
        _keep_cause(error, raised)
        return broken(record, Breakdown.TEST, str(error))
    except TargetError as error:
        _keep_cause(error, raised)
        reason = f"the API raises on the device, though the CPU computes it: {error}"
        return broken(record, Breakdown.RUN, reason)
    except LinkError as error:
        return broken(record, error.breakdown, str(error))
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return broken(record, Breakdown.OOM, f"memory ran out: {describe_error(error)}")
    return decided(record, outputs, time.perf_counter() - started)


def _keep_cause(error: Exception, raised: list[BaseException] | None) -> None:
    if raised is not None and error.__cause__ is not None:
        raised.append(error.__cause__)

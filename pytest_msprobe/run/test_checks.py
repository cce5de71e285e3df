"""Checks that a user's test makes, kept with the test (of Hypothesis' examples the last), attached to its reports."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

import pytest

from pytest_msprobe.reports.github import first_of_several
from pytest_msprobe.reports.junit import drop_properties, verdict_properties
from pytest_msprobe.results.result import DirectionResult, to_plain
from pytest_msprobe.run.item import JudgedItem, PrecisionError
from pytest_msprobe.run.options import options_key
from pytest_msprobe.run.rerun_command import rerun_test_command
from pytest_msprobe.run.setups import setups_key

_SEVERITY = {"skip": 0, "pass": 1, "warn": 2, "fail": 3}


class ChecksOfTest:
    """The checks of one attempt at a test, by the name of what was checked.

    Of several results under one name, as the examples of Hypothesis have, the worst counts, of failures the last:
    Hypothesis ends with the smallest.
    """

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self._results: dict[str, DirectionResult] = {}
        self._unreported: dict[str, DirectionResult] = {}
        self._unjudged: list[str] = []
        self._begun = 0
        #: Whether the test's own code runs now.
        self.is_running = False
        drop_properties(item.user_properties)

    def next_name(self) -> str:
        """Return what the next check of a function is called: the test's name, from the second on with a number."""
        self._begun += 1
        return self._item.name if self._begun == 1 else f"{self._item.name}#{self._begun}"

    def start_over(self) -> None:
        """Restart the numbering of checks: those that follow are those made before, on another example."""
        self._begun = 0

    def add(self, result: DirectionResult, seed: int | None = None) -> None:
        """Keep what came of a check; ``seed`` is that of its inputs where it is not the run's."""
        earlier = self._results.get(result.record)
        if earlier is None or _weight(result) >= _weight(earlier):
            self._results[result.record] = self._unreported[result.record] = result
        self._report(seed)

    def add_unjudged(self, line: str) -> None:
        """Keep a line on what the test did not judge and has no check for."""
        self._unjudged.append(f"{self._item.nodeid}: {line}")

    def take_unjudged(self) -> list[str]:
        """Return the lines since the last call."""
        lines, self._unjudged = self._unjudged, []
        return lines

    def _report(self, seed: int | None) -> None:
        """Add the worst of the test's results to JUnit's properties, and what it ran on."""
        properties, config = self._item.user_properties, self._item.config
        start = config.stash[setups_key].start
        drop_properties(properties)
        properties += [
            *verdict_properties(max(self._results.values(), key=_weight)),
            *([("msprobe.checks", str(len(self._results)))] if len(self._results) > 1 else []),
            ("msprobe.device", start.device),
            ("msprobe.math_modes", start.modes_in_words),
            ("msprobe.seed", str(config.stash[options_key].seed if seed is None else seed)),
        ]

    def take_plain(self) -> list[dict[str, Any]]:
        """Return the results since the last call as plain data, under names that no other test has."""
        results, self._unreported = self._unreported.values(), {}
        return [to_plain(replace(result, record=self._among_tests(result.record))) for result in results]

    def _among_tests(self, record: str) -> str:
        test, name = self._item.nodeid, self._item.name
        return f"{test}{record.removeprefix(name)}" if record.startswith(name) else f"{test}::{record}"


def _weight(result: DirectionResult) -> tuple[int, float]:
    verdict = result.verdict
    failed = verdict.outcome == "fail"
    return _SEVERITY[verdict.outcome], 0.0 if failed else verdict.margin


_running_key = pytest.StashKey[pytest.Item]()
_checks_key = pytest.StashKey[ChecksOfTest]()


def begin(item: pytest.Item) -> None:
    """Begin an attempt at a test; what is judged as an item reports by itself."""
    if not isinstance(item, JudgedItem):
        item.config.stash[_running_key] = item
        item.stash[_checks_key] = ChecksOfTest(item)


@contextlib.contextmanager
def running(item: pytest.Item) -> Iterator[None]:
    """Mark the checks as running: the test's own code runs inside."""
    checks = item.stash.get(_checks_key, None)
    if checks is None:
        yield
        return
    checks.is_running = True
    try:
        yield
    finally:
        checks.is_running = False


def running_test(config: pytest.Config) -> pytest.Item:
    """Return the test that runs now, of those that `begin` was called for."""
    return config.stash[_running_key]


def checks_of(item: pytest.Item) -> ChecksOfTest:
    """Return the checks of the test's present attempt."""
    return item.stash[_checks_key]


def attach_checks(item: pytest.Item, report: Any) -> None:
    """Attach the results of a test's checks, if it made any, to its report, as plain data: once."""
    checks = item.stash.get(_checks_key, None)
    # A subtest that failed has a report of its own, made while the test runs.
    if checks is None or checks.is_running:
        return
    if unjudged := checks.take_unjudged():
        report.msprobe_unjudged = unjudged
    if plain := checks.take_plain():
        report.msprobe_checks = plain
        report.msprobe_command = rerun_test_command(item, item.config.stash[setups_key].card)


def fail_subtests(
    request: pytest.FixtureRequest,
    failed: Sequence[DirectionResult],
    rerun: Callable[[DirectionResult], str],
    place: str = "",
) -> None:
    """Report each of these results as a failed subtest, named after the record, and go on with the test.

    ``rerun`` returns the command that judges one again. Raises PrecisionError with the first and a note of the others
    where there are no subtests: pytest has them from version 9, and ``-p no:subtests`` turns them off.
    """
    __tracebackhide__ = True
    if not failed:
        return
    verbosity = request.config.get_verbosity()
    try:
        subtests = request.getfixturevalue("subtests")
    except pytest.FixtureLookupError:
        first = first_of_several(failed)
        raise PrecisionError(first, rerun(first), verbosity, place) from None
    for result in failed:
        with subtests.test(msg=result.record):
            raise _at_line_of(request.node, PrecisionError(result, rerun(result), verbosity, place))


def _at_line_of(test: pytest.Item, error: PrecisionError) -> PrecisionError:
    """Return an error with a traceback that ends in the test: pytest shows neither line nor reason without one."""
    frame = sys._getframe()
    while frame.f_code.co_filename != str(test.path):
        if frame.f_back is None:
            return error
        frame = frame.f_back
    return error.with_traceback(TracebackType(None, frame, frame.f_lasti, frame.f_lineno))


@contextlib.contextmanager
def examples_of(item: pytest.Item) -> Iterator[None]:
    """Restart the checks of a test with each of its examples, so that they have the names of those before."""
    if "precision" not in getattr(item, "fixturenames", ()):
        yield
        return
    handle = getattr(getattr(item, "obj", None), "hypothesis", None)
    inner = getattr(handle, "inner_test", None)
    if inner is None:
        yield
        return

    @functools.wraps(inner)
    def one_example(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        checks_of(item).start_over()
        return inner(*args, **kwargs)

    @functools.wraps(inner)
    async def one_awaited(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        checks_of(item).start_over()
        return await inner(*args, **kwargs)

    # Hypothesis lets plugins replace it: https://hypothesis.readthedocs.io, "Custom function execution". Those that run
    # coroutines do so as well, where they find one.
    handle.inner_test = one_awaited if inspect.iscoroutinefunction(inner) else one_example  # type: ignore[union-attr]
    try:
        yield
    finally:
        handle.inner_test = inner  # type: ignore[union-attr]

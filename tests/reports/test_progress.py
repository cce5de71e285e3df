from __future__ import annotations

import pytest

from pytest_msprobe.run.progress_display import RunProgress, duration, long_lines, progress_lines


def run(done: int, failed: int = 0) -> RunProgress:
    progress = RunProgress()
    for number in range(done):
        progress.start(str(number), "", 100.0)
        progress.finish(str(number))
    progress.failed = failed
    return progress


def test_share_failures_rate_and_time_left_are_reported() -> None:
    assert [*progress_lines(run(50, failed=3), 200, now=110.0)] == ["50 of 200 (25%), 3 failed, 5.0/s, 0:30 left"]


def test_nothing_is_reported_before_an_item_is_done() -> None:
    progress = RunProgress()
    progress.start("a", "", 1.0)
    assert [*progress_lines(progress, 10, now=9.0)] == []


def test_of_a_number_of_items_that_is_not_known_no_share_is_reported() -> None:
    assert [*progress_lines(run(50), 0, now=101.0)] == ["50 done, 50/s"]


def test_what_runs_for_long_is_reported_the_longest_first() -> None:
    progress = RunProgress()
    for item, worker, began in (("d.json::a.0", "gw0", 5.0), ("d.json::b.0", "gw1", 0.0), ("d.json::c.0", "gw2", 59.0)):
        progress.start(item, worker, began)
    assert [*long_lines(progress, 60.0, 5)] == ["gw1 for 1:00 on b.0", "gw0 for 0:55 on a.0"]
    assert [*long_lines(progress, 60.0, 1)] == ["gw1 for 1:00 on b.0", "and 1 more for 10 s or longer"]
    assert [*long_lines(progress, 60.0, 0)] == []


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (61, "1:01"), (3599.7, "1:00:00"), (7265, "2:01:05")])
def test_a_time_has_minutes_and_from_an_hour_on_hours(seconds: float, text: str) -> None:
    assert duration(seconds) == text

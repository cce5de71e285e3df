"""What of monitored runs comes into their page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msprobe_hooks.extensions.monitor.series.blocks import StepTime, append_step_time
from msprobe_hooks.extensions.monitor.series.reader import Run
from pytest_msprobe.extensions.monitor.golden.rank_pair import Compared
from pytest_msprobe.extensions.monitor.page.build import Curves, Finding, RankRuns, WatchedPage, build_page
from tests.support.dumps.watched import norm, write_norms

WORDS = {"title": "a", "about": "b", "verdict": "c"}


def rank(target: Run, golden: Run | None = None, **more: Any) -> RankRuns:
    """Return a rank with what either run watched."""
    keys = dict.fromkeys([*target.keys, *(golden.keys if golden else ())])
    return RankRuns(more.pop("label", ""), [*keys], target, golden, **more)


def curves(page: WatchedPage, name: str) -> Curves:
    return next(each for each in page.curves if each.key.name == name)


def test_a_spike_of_one_step_in_ten_thousand_survives(tmp_path: Path) -> None:
    values = np.ones(10_000)
    values[7_123] = 50.0
    page = build_page([rank(write_norms(tmp_path, {norm("fc.weight"): values}))], **WORDS)
    found = curves(page, "fc.weight").target
    assert found is not None
    (bin_,) = np.flatnonzero(found.high == 50.0)
    assert page.is_binned
    assert page.axis.starts[bin_] <= 7_123 < page.axis.starts[bin_ + 1]


def test_few_steps_are_not_binned(tmp_path: Path) -> None:
    page = build_page([rank(write_norms(tmp_path, {norm("fc.weight"): [1.0, 2.0]}, every=10))], **WORDS)
    assert not page.is_binned
    assert page.axis.starts.tolist() == [0, 10]


def test_times_are_those_of_the_first_step_of_each_bin_and_of_the_last_step(tmp_path: Path) -> None:
    run = write_norms(tmp_path, {norm("fc.weight"): np.ones(1000)})
    for step in range(1000):
        append_step_time(tmp_path, StepTime(step, 1e9 + 2.5 * step))
    page = build_page([rank(run)], **WORDS)
    assert page.is_binned
    assert page.times is not None
    assert page.times.tolist() == [*(1e9 + 2.5 * page.axis.starts), 1e9 + 2.5 * 999]


def test_a_run_whose_times_begin_late_has_none(tmp_path: Path) -> None:
    run = write_norms(tmp_path, {norm("fc.weight"): np.ones(10)})
    for step in range(5, 10):
        append_step_time(tmp_path, StepTime(step, 1e9 + step))
    assert build_page([rank(run)], **WORDS).times is None


def test_series_that_an_option_names_keep_every_step(tmp_path: Path) -> None:
    run = write_norms(tmp_path, {norm("fc.weight"): np.arange(1000.0), norm("fc.bias"): np.arange(1000.0)})
    page = build_page([rank(run)], exact=["*.weight"], **WORDS)
    whole = curves(page, "fc.weight").exact
    assert whole is not None
    assert whole.target is not None
    assert whole.target.values.tolist() == list(range(1000))
    assert curves(page, "fc.bias").exact is None


def test_series_with_findings_keep_every_step(tmp_path: Path) -> None:
    run = write_norms(tmp_path, {norm("fc.weight"): np.ones(1000), norm("fc.bias"): np.ones(1000)})
    finding = Finding(0, norm("fc.bias"), 3, "fail", "rule", "message")
    page = build_page([rank(run)], [finding], **WORDS)
    assert curves(page, "fc.bias").exact is not None


def test_a_pair_shows_what_either_run_watched(tmp_path: Path) -> None:
    target = write_norms(tmp_path / "a", {norm("fc.weight"): [1.0, 2.0], norm("new.weight"): [1.0, 1.0]})
    golden = write_norms(tmp_path / "b", {norm("fc.weight"): [1.0, 4.0, 5.0], norm("old.weight"): [1.0, 1.0]})
    page = build_page([rank(target, golden)], **WORDS)
    assert [each.key.name for each in page.curves] == ["fc.weight", "new.weight", "old.weight"]
    gap = curves(page, "fc.weight").gap
    assert gap is not None
    assert np.flatnonzero(gap > 1).tolist() == [1]
    assert curves(page, "new.weight").golden is None
    assert curves(page, "old.weight").target is None


def test_tasks_that_were_watched_at_other_steps_share_the_axis(tmp_path: Path) -> None:
    run = write_norms(tmp_path, {norm("fc.weight"): [1.0], norm("fc.output", "actv"): [1.0, 2.0, 3.0]})
    page = build_page([rank(run)], **WORDS)
    assert page.axis.starts.tolist() == [0, 1, 2]


def test_notes_say_whose_they_are(tmp_path: Path) -> None:
    target = write_norms(tmp_path / "a", {norm("fc.weight"): [1.0]})
    golden = write_norms(tmp_path / "b", {norm("fc.weight"): [1.0]})
    golden.notes = ["step 3 was written twice"]
    page = build_page([rank(target, golden, label="rank 1")], **WORDS)
    assert page.notes == ["rank 1 golden: step 3 was written twice"]


def test_nothing_watched_is_no_page() -> None:
    with pytest.raises(ValueError, match="the run has no steps"):
        build_page([], **WORDS)


def test_what_was_allowed_is_reported_for_series_with_findings(tmp_path: Path) -> None:
    series = {norm("fc.weight"): np.ones(3), norm("fc.bias"): np.ones(3)}
    target, golden = write_norms(tmp_path / "a", series), write_norms(tmp_path / "b", series)
    steps = np.arange(3)
    compared = Compared(steps, np.ones(3), np.ones(3), np.zeros(3), np.full(3, 1e-6))
    finding = Finding(0, norm("fc.bias"), 3, "fail", "golden", "message")
    page = build_page([rank(target, golden, compared=lambda key: compared)], [finding], **WORDS)
    assert curves(page, "fc.bias").compared is compared
    assert curves(page, "fc.weight").compared is None

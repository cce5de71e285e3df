"""Series that end before their run does are noted."""

from __future__ import annotations

import numpy as np

from tests.support.dumps.watched import norm, write_norms


def notes(folder, lengths):
    return list(write_norms(folder, {norm(*name): np.arange(1, size + 1) for name, size in lengths.items()}).notes)


def test_a_task_that_ends_early_is_named_with_its_last_step(tmp_path):
    assert notes(tmp_path, {("a.output", "actv"): 25, ("b.output", "actv"): 24, ("w",): 60}) == [
        "actv: ends at step 24; the run goes on to step 59"
    ]


def test_a_tensor_that_ends_early_is_named(tmp_path):
    assert notes(tmp_path, {("w",): 40, ("b",): 60, ("c",): 60}) == [
        "grad_reduced: 1 of its series end before step 59: w at step 39"
    ]


def test_a_run_that_is_still_written_has_not_ended_early(tmp_path):
    assert notes(tmp_path, {("a.output", "actv"): 60, ("w",): 59}) == []


def test_a_tensor_that_some_steps_do_without_has_not_ended(tmp_path):
    run = write_norms(tmp_path, {norm("expert"): np.ones(20), norm("w"): np.ones(40)})
    assert len(run.notes) == 1
    path = next(tmp_path.glob("*.csv"))
    lines = [line for place, line in enumerate(path.read_text().splitlines(keepends=True)) if place not in (3, 7, 9)]
    path.write_text("".join(lines))
    assert list(type(run)(run.folder, run._contents).notes) == run.notes

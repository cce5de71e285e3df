"""When the steps of a monitored run ended."""

from __future__ import annotations

import time

import numpy as np
import pytest

from msprobe_hooks import TrainerMon
from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.series.blocks import FILE, StepTime, append_step_time, read_step_times
from msprobe_hooks.extensions.monitor.series.conversion import csv2tensorboard_by_step
from msprobe_hooks.extensions.monitor.series.reader import rank_folders


@pytest.fixture
def watched(config, trained, tmp_path):
    """Train a small model with a monitor for three steps and return the folder of its series."""

    def watch(kind="csv"):
        trained(TrainerMon(config(wg_distribution=True, format=kind, ops=["norm"])), 3)
        (folder,) = (tmp_path / "out").iterdir()
        return folder

    return watch


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_monitored_run_holds_when_each_of_its_steps_ended(watched, kind):
    began = time.time()
    ended = read_step_times(watched(kind))
    assert ended.steps.tolist() == [0, 1, 2]
    assert (np.diff([began, *ended.times, time.time()]) >= 0).all()


def test_events_hold_the_times_at_which_steps_ended(tmp_path, watched):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = watched()
    written = csv2tensorboard_by_step(tmp_path / "out", output_dirpath=tmp_path / "events")
    events = EventAccumulator(str(written / "rank0" / "grad_reduced")).Reload()
    scalars = events.Scalars("vp0:0.weight/norm")
    assert [one.wall_time for one in scalars] == read_step_times(folder).times.tolist()


def test_events_of_the_monitor_itself_need_no_file_of_times(watched):
    assert not (watched("tensorboard") / FILE).exists()


def test_the_last_end_of_a_repeated_step_counts(tmp_path):
    for step, at in ((0, 10.0), (1, 11.0), (2, 12.0), (1, 21.0), (2, 22.0)):
        append_step_time(tmp_path, StepTime(step, at))
    ended = read_step_times(tmp_path)
    assert (ended.steps.tolist(), ended.times.tolist()) == ([0, 1, 2], [10.0, 21.0, 22.0])


def test_time_stands_still_where_the_clock_was_set_back(tmp_path):
    for step, at in enumerate((10.0, 11.0, 5.0, 12.0)):
        append_step_time(tmp_path, StepTime(step, at))
    assert read_step_times(tmp_path).times.tolist() == [10.0, 11.0, 11.0, 12.0]


def test_the_last_line_of_a_process_that_was_killed_is_left_out(tmp_path):
    (tmp_path / FILE).write_text('{"step":0,"time":10.0}\n{"step":2,"ti')
    assert read_step_times(tmp_path).steps.tolist() == [0]


@pytest.mark.parametrize(
    "line", ["[]", '{"step":-1,"time":1}', '{"step":1,"time":NaN}', '{"step":1,"time":1e300}', '{"step":2,"ti']
)
def test_a_line_that_holds_no_end_of_a_step_is_an_error(tmp_path, line):
    (tmp_path / FILE).write_text(f'{{"step":0,"time":10.0}}\n{line}\n')
    with pytest.raises(MonitorError, match=f"{FILE}:2: .*; remove that line"):
        read_step_times(tmp_path)


def test_a_run_of_msprobe_holds_no_times(tmp_path):
    assert read_step_times(tmp_path) is None


def test_the_file_of_times_is_no_series(tmp_path, watched):
    folder = watched()
    assert rank_folders(tmp_path / "out") == [folder]

"""When the steps of a monitored run ended."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
import torch
from torch import nn

from msprobe_hooks import TrainerMon
from msprobe_hooks.instruments.series.conversion import csv2tensorboard_by_step
from msprobe_hooks.instruments.series.reader import rank_folders
from msprobe_hooks.instruments.series.step_times import FILE, StepTime, append_step_time, read_step_times


def watch(tmp_path, monkeypatch, kind="csv", steps=3):
    """Train a small model with a monitor for some steps and return the folder of its series."""
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path / "out"))
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"targets": {"": {}}, "wg_distribution": True, "format": kind, "ops": ["norm"]}))
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters())
    TrainerMon(str(config)).set_monitor(model, grad_acc_steps=1, optimizer=optimizer)
    for _ in range(steps):
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    (folder,) = (tmp_path / "out").iterdir()
    return folder


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_monitored_run_holds_when_each_of_its_steps_ended(tmp_path, monkeypatch, kind):
    began = time.time()
    ended = read_step_times(watch(tmp_path, monkeypatch, kind))
    assert ended.steps.tolist() == [0, 1, 2]
    assert (np.diff([began, *ended.times, time.time()]) >= 0).all()


def test_events_hold_the_times_at_which_steps_ended(tmp_path, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = watch(tmp_path, monkeypatch)
    written = csv2tensorboard_by_step(tmp_path / "out", output_dirpath=tmp_path / "events")
    events = EventAccumulator(str(written / "rank0" / "grad_reduced")).Reload()
    scalars = events.Scalars("vp0:weight/norm")
    assert [one.wall_time for one in scalars] == read_step_times(folder).times.tolist()


def test_events_of_the_monitor_itself_need_no_file_of_times(tmp_path, monkeypatch):
    assert not (watch(tmp_path, monkeypatch, "tensorboard") / FILE).exists()


def test_the_last_end_of_a_repeated_step_counts(tmp_path):
    for step, at in ((0, 10.0), (1, 11.0), (2, 12.0), (1, 21.0), (2, 22.0)):
        append_step_time(tmp_path, StepTime(step, at))
    ended = read_step_times(tmp_path)
    assert (ended.steps.tolist(), ended.times.tolist()) == ([0, 1, 2], [10.0, 21.0, 22.0])


def test_time_stands_still_where_the_clock_was_set_back(tmp_path):
    for step, at in enumerate((10.0, 11.0, 5.0, 12.0)):
        append_step_time(tmp_path, StepTime(step, at))
    assert read_step_times(tmp_path).times.tolist() == [10.0, 11.0, 11.0, 12.0]


def test_lines_that_hold_no_end_of_a_step_are_left_out(tmp_path):
    lines = [
        '{"step":0,"time":10.0}',
        "[]",
        '{"step":-1,"time":1}',
        '{"step":1,"time":NaN}',
        '{"step":1,"time":1e300}',
        '{"step":2,"ti',
    ]
    (tmp_path / FILE).write_text("\n".join(lines))
    assert read_step_times(tmp_path).steps.tolist() == [0]


def test_a_run_of_msprobe_holds_no_times(tmp_path):
    assert read_step_times(tmp_path) is None


def test_the_file_of_times_is_no_series(tmp_path, monkeypatch):
    folder = watch(tmp_path, monkeypatch)
    assert rank_folders(tmp_path / "out") == [folder]

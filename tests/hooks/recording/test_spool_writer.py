"""Steps of a training that are moved into a spool folder."""

from __future__ import annotations

import shutil
import threading
import time

import pytest
import torch

from msprobe_hooks import ConfigError, RecordingError, record
from msprobe_hooks.dump.recording_paths import find_dumps
from msprobe_hooks.dump.writer import Dropped, read_dropped, size_of, waiting_steps
from msprobe_hooks.recording.config import read_config, settings


def train(folder, steps=1, **options):
    """Record so many steps and return the recording."""
    with record(folder, **{"spool_size": "1GiB", **options}) as session:
        for _ in range(steps):
            torch.tanh(torch.ones(2))
            session.step()
    return session


def names(folder):
    return [step.relative_to(folder).as_posix() for step in waiting_steps(folder)]


def size_of_one_step(folder):
    train(folder)
    return size_of(folder / "step0" / "rank")


def test_a_step_is_in_the_folder_once_it_is_complete_and_not_before(tmp_path):
    with record(tmp_path, spool_size="1GiB") as session:
        torch.tanh(torch.ones(2))
        session.stop()
        assert names(tmp_path) == []
        session.step()
        assert names(tmp_path) == ["step0/rank"]
    assert session.summary.folders == [tmp_path / "step0" / "rank"]


def test_a_step_without_records_is_not_moved_in(tmp_path):
    train(tmp_path, steps=2)
    assert names(tmp_path) == ["step0/rank", "step1/rank"]
    assert find_dumps(tmp_path) == [tmp_path / name / "dump.json" for name in names(tmp_path)]


def test_steps_that_find_no_room_are_dropped_and_counted(tmp_path):
    size = size_of_one_step(tmp_path / "one")
    summary = train(tmp_path / "spool", steps=5, spool_size=int(2.5 * size), spool_full="drop").summary
    assert names(tmp_path / "spool") == ["step0/rank", "step1/rank"]
    assert [dropped.step for dropped in read_dropped(tmp_path / "spool")[0]] == [2, 3, 4]
    assert "3 steps were dropped: the spool folder is full" in str(summary)


def test_a_step_waits_until_there_is_room(tmp_path):
    size = size_of_one_step(tmp_path / "one")
    with record(tmp_path / "spool", spool_size=int(1.5 * size)) as session:
        torch.tanh(torch.ones(2))
        session.step()
        torch.tanh(torch.ones(2))
        removal = threading.Timer(0.4, shutil.rmtree, [tmp_path / "spool" / "step0"])
        removal.start()
        session.step()
        removal.join()
    assert names(tmp_path / "spool") == ["step1/rank"]
    assert not session.summary.dropped


def test_a_training_waits_once_for_a_watch_that_is_not_there(tmp_path):
    size = size_of_one_step(tmp_path / "one")
    began = time.monotonic()
    summary = train(tmp_path / "spool", steps=20, spool_size=int(1.5 * size), spool_wait=2).summary
    assert sum(summary.dropped.values()) == 19
    assert time.monotonic() - began < 19 * 2


def test_a_step_that_is_larger_than_the_folder_may_be_does_not_wait(tmp_path):
    summary = train(tmp_path, spool_size=1).summary
    assert list(summary.dropped) == ["larger than spool_size (1 B)"]


def test_once_there_is_the_stop_file_steps_are_dropped(tmp_path):
    with record(tmp_path, spool_size="1GiB") as session:
        torch.tanh(torch.ones(2))
        (tmp_path / "stop").touch()
        session.step()
    (dropped,), _ = read_dropped(tmp_path)
    assert (dropped.step, dropped.rank, dropped.reason) == (0, None, "the file 'stop' closes the spool folder")
    with pytest.raises(RecordingError, match=r"stop: this file closes the spool folder; remove it"):
        train(tmp_path)


def test_two_trainings_of_one_rank_do_not_share_a_folder(tmp_path):
    with record(tmp_path, spool_size="1GiB"), pytest.raises(RecordingError, match="another training records this rank"):
        train(tmp_path)


def test_what_a_training_that_was_killed_was_writing_is_removed(tmp_path):
    left = tmp_path / ".recording" / "rank" / "step7" / "rank"
    left.mkdir(parents=True)
    (left / "dump.json").write_text("{")
    train(tmp_path)
    assert not left.exists()
    assert names(tmp_path) == ["step0/rank"]


def test_a_line_of_what_was_dropped_that_was_cut_short_is_left_out(tmp_path):
    (tmp_path / "dropped.jsonl").write_text('{"step":1,"rank":0,"bytes":5,"reason":"full"}\n{"step":2,"ra')
    assert read_dropped(tmp_path) == ([Dropped(1, 0, 5, "full")], [])


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({"spool_size": "much"}, "a size above 0, such as 10GiB"),
        ({"spool_size": 0}, "a size above 0"),
        ({"spool_size": True}, "a size above 0"),
        ({"spool_size": 5, "spool_full": "panic"}, "wait, drop"),
        ({"spool_size": 5, "spool_wait": -1}, "a number of seconds from 0"),
        ({"spool_full": "drop"}, "not supported without spool_size"),
        ({"spool_size": 5, "task": "structure"}, "statistics or tensor with spool_size"),
        ({"spool_size": 5, "level": "L0"}, "L1, mix or aten with spool_size"),
    ],
)
def test_a_wrong_option_of_a_spool_folder_is_reported(tmp_path, options, allowed):
    with pytest.raises(ConfigError, match=allowed):
        settings(tmp_path, **options)


def test_a_config_file_may_ask_for_a_spool_folder(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"task": "statistics", "spool_size": "2MiB", "spool_full": "drop"}')
    spool = read_config(path).spool
    assert spool is not None
    assert (spool.bytes, spool.seconds) == (2 * 2**20, 0.0)

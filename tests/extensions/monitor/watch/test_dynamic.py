"""``dynamic_on``: the configuration is read again while a training runs."""

from __future__ import annotations

import json
import os

import pytest
import torch
from torch import nn

from msprobe_hooks import TrainerMon
from msprobe_hooks.extensions.monitor.series.reader import open_run, rank_folders


class TestDynamicOn:
    @pytest.fixture(autouse=True)
    def dynamic(self, monkeypatch):
        monkeypatch.setenv("DYNAMIC_MONITOR", "True")

    @pytest.fixture
    def training(self, config):
        """Return a function that trains one step, and one that writes the configuration with another mtime."""
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        path = config(dynamic_on=False)
        TrainerMon(path).set_monitor(model, optimizer)
        written = iter(range(1, 100))

        def write(text):
            path.write_text(text)
            os.utime(path, (next(written),) * 2)

        def step():
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()

        return step, write

    @staticmethod
    def steps(folder):
        return [open_run(one).read(open_run(one).keys[0]).steps.tolist() for one in rank_folders(folder)]

    def test_nothing_is_watched_until_it_is_on_and_the_next_step_is_the_first(self, training, tmp_path):
        step, write = training
        step()
        assert not (tmp_path / "out").exists()
        write('{"dynamic_on": true, "wg_distribution": true}')
        for _ in range(3):
            step()
        assert self.steps(tmp_path / "out") == [[2, 3]]

    def test_what_is_wrong_in_the_file_keeps_what_was_watched(self, training, tmp_path, caplog):
        step, write = training
        write('{"dynamic_on": true, "wg_distribution": true}')
        step()
        for text in ('{"dynamic_on": tr', '{"dynamic_on": true, "wg": true}', '{"dynamic_on": true, "eps": "small"}'):
            write(text)
            step()
        assert self.steps(tmp_path / "out") == [[1, 2, 3]]
        path = tmp_path / "config.json"
        assert f"the monitor goes on as before: {path}: unknown key 'wg'; known: " in caplog.text
        assert "the monitor goes on as before: eps is 'small'; allowed: a number >= 0" in caplog.text

    def test_a_file_that_is_gone_is_reported_once_and_keeps_what_was_watched(self, training, tmp_path, caplog):
        step, write = training
        write('{"dynamic_on": true, "wg_distribution": true}')
        step()
        (tmp_path / "config.json").unlink()
        for _ in range(3):
            step()
        assert self.steps(tmp_path / "out") == [[1, 2, 3]]
        assert caplog.text.count("is ignored, the monitor goes on as before") == 1

    def test_a_folder_to_append_to_that_is_not_there_keeps_what_was_watched(self, training, tmp_path, caplog):
        step, write = training
        write('{"dynamic_on": true, "wg_distribution": true}')
        step()
        write('{"dynamic_on": true, "append_output": ["Jan01_00-00-00", "Jan01_00-00-01"]}')
        for _ in range(2):
            step()
        assert self.steps(tmp_path / "out") == [[1, 2]]
        assert "the monitor goes on as before: " in caplog.text

    def test_it_is_off_again_when_as_much_was_collected_as_was_asked_for(self, training, tmp_path, config):
        step, write = training
        write('{"dynamic_on": true, "wg_distribution": true, "collect_times": 2}')
        for _ in range(5):
            step()
        assert self.steps(tmp_path / "out") == [[1, 2]]
        assert json.loads((tmp_path / "config.json").read_text())["dynamic_on"] is False

"""What programs written for msprobe do with a debugger's ``config`` and ``service``."""

from __future__ import annotations

import json
import logging

import pytest
import torch
from torch import nn

from msprobe_hooks import ConfigError, RecordingError


def dumps(folder):
    return sorted(str(path.parent.relative_to(folder)) for path in folder.rglob("dump.json"))


def one_step(debug, model=None):
    debug.start(model)
    torch.tanh(torch.ones(2)) if model is None else model(torch.ones(1, 2))
    debug.stop()


def test_the_configuration_of_a_debugger_is_read_under_msprobes_names(tmp_path, debugger):
    debug = debugger(dump_path=tmp_path / "d", level="L0", task="tensor", step=[2, "0-1"])
    config = debug.config
    assert (config.dump_path, debug.dump_path) == (str(tmp_path / "d"),) * 2
    assert (config.level, config.task, config.rank, config.step) == ("L0", "tensor", [], [0, 1, 2])
    assert debugger._instance.service.config is config


def test_only_the_folder_of_a_configuration_can_be_set(tmp_path, debugger):
    config = debugger(dump_path=tmp_path / "d").config
    with pytest.raises(AttributeError, match="level"):
        config.level = "mix"
    with pytest.raises(ConfigError, match="dump_path is 3"):
        config.dump_path = 3


def test_each_stage_of_a_step_is_recorded_into_a_folder_of_its_own(tmp_path, records, debugger):
    debug = debugger(dump_path=tmp_path)
    for stage in ("old_log_prob", "actor_update"):
        debug.service.config.dump_path = str(tmp_path / "step_1" / stage)
        one_step(debug)
        debug.service._reset_status()
    debug.step()
    assert dumps(tmp_path) == ["step_1/actor_update/step0/rank", "step_1/old_log_prob/step0/rank"]
    for stage in ("old_log_prob", "actor_update"):
        assert list(records(tmp_path / "step_1" / stage)) == ["Torch.tanh.0.forward"]


def test_a_folder_that_is_set_is_not_used_before_the_next_start(tmp_path, records, debugger):
    debug = debugger(dump_path=tmp_path / "a")
    debug.start()
    torch.tanh(torch.ones(2))
    debug.config.dump_path = tmp_path / "b"
    torch.sigmoid(torch.ones(2))
    debug.stop()
    assert list(records(tmp_path / "a")) == ["Torch.tanh.0.forward", "Torch.sigmoid.0.forward"]
    assert not (tmp_path / "b").exists()


def test_a_folder_may_be_left_and_used_again_in_a_later_step(tmp_path, debugger):
    debug = debugger(dump_path=tmp_path / "a", step=[0, 1, 2])
    for folder in ("a", "b", "a"):
        debug.config.dump_path = tmp_path / folder
        one_step(debug)
        debug.step()
    assert dumps(tmp_path) == ["a/step0/rank", "a/step2/rank", "b/step1/rank"]


def test_a_folder_with_the_dump_of_an_earlier_run_is_refused_when_it_is_set(tmp_path, debugger):
    debug = debugger(dump_path=tmp_path / "a")
    one_step(debug)
    debug.config.dump_path = tmp_path / "b"
    one_step(debug)
    debug.config.dump_path = tmp_path / "a"
    with pytest.raises(RecordingError, match=r"a/step0/rank/dump\.json"):
        debug.start()


def test_gradients_of_an_earlier_folder_are_not_written_into_the_next_one(tmp_path, records, debugger):
    debug = debugger(dump_path=tmp_path / "a")
    debug.start()
    late = torch.tanh(torch.ones(2, requires_grad=True))
    debug.stop()
    debug.config.dump_path = tmp_path / "b"
    debug.start()
    late.sum().backward()
    debug.stop()
    assert list(records(tmp_path / "a")) == ["Torch.tanh.0.forward"]
    assert "Torch.tanh.0.backward" not in records(tmp_path / "b")
    assert debug._session.summary.late == 1


def test_another_model_at_the_next_start_is_recorded_too(tmp_path, records, debugger):
    debug = debugger(dump_path=tmp_path, level="L0")
    for stage, model in (("actor", nn.Sequential(nn.Tanh())), ("critic", nn.Sequential(nn.ReLU()))):
        debug.config.dump_path = tmp_path / stage
        one_step(debug, model)
    assert list(records(tmp_path / "actor")) == ["Module.0.Tanh.forward.0"]
    assert list(records(tmp_path / "critic")) == ["Module.0.ReLU.forward.0"]


def test_models_that_are_given_again_are_recorded_once(tmp_path, records, debugger):
    debug = debugger(dump_path=tmp_path, level="L0")
    model = nn.Sequential(nn.Tanh())
    for _ in range(2):
        debug.start([model])
        model(torch.ones(1, 2))
        debug.stop()
    assert list(records(tmp_path)) == ["Module.0.0.Tanh.forward.0", "Module.0.0.Tanh.forward.1"]


def test_a_service_counts_steps_and_ends_after_the_last_wanted_one(tmp_path, debugger):
    debug = debugger(dump_path=tmp_path, step=[0, 1])
    seen = []
    for _ in range(3):
        one_step(debug)
        seen.append((debug.service.current_iter, debug.service.should_stop_service))
        debug.step()
    assert seen == [(0, False), (1, False), (2, True)]


def test_what_is_not_followed_is_reported_once(tmp_path, debugger, caplog):
    debug = debugger(dump_path=tmp_path, level="L0")
    with caplog.at_level(logging.WARNING, logger="msprobe_hooks"):
        for _ in range(2):
            debug.start(model=nn.Sequential(nn.Tanh()), rank_id=0, token_range=[0, 0])
            debug.stop()
            debug.step(dump=False)
    assert [record.message.split(" is ignored")[0] for record in caplog.records] == [
        "token_range",
        "step(dump=False)",
    ]


def test_a_task_that_checks_records_statistics_and_says_so(tmp_path, records, debugger, caplog):
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({"task": "acc_check", "dump_path": str(tmp_path / "d"), "acc_check": {"white_list": []}})
    )
    with caplog.at_level(logging.WARNING, logger="msprobe_hooks"):
        one_step(debugger(str(path)))
    assert list(records(tmp_path / "d")) == ["Torch.tanh.0.forward"]
    assert "pytest --msprobe-dump DUMP --msprobe-config config.json" in caplog.text

"""``dump_enable`` of ``config.json`` turns a recording on and off while the program runs."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from msprobe_hooks import ConfigError, PrecisionDebugger


class Config:
    """A ``config.json`` that a program writes, each time with a newer time of change."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "config.json"
        self.dump_path = folder / "run"
        self._time = 1_000_000_000

    def write(self, **keys: Any) -> None:
        content = {"task": "statistics", "dump_path": str(self.dump_path), "level": "L1"}
        self.write_text(json.dumps(content | keys))

    def write_text(self, text: str) -> None:
        self.path.write_text(text)
        self._time += 1
        os.utime(self.path, (self._time, self._time))

    def steps(self) -> list[str]:
        """Return the steps that were recorded."""
        return sorted(path.parent.parent.name for path in self.dump_path.glob("step*/rank*/dump.json"))


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(tmp_path)


@pytest.fixture(autouse=True)
def of_its_own() -> Iterator[None]:
    """Make each test's debugger the first of its process."""
    yield
    if PrecisionDebugger._instance is not None:
        PrecisionDebugger._instance._finish()
        PrecisionDebugger._instance = None


def step(debugger: PrecisionDebugger) -> None:
    debugger.start()
    torch.relu(torch.ones(2))
    debugger.stop()
    debugger.step()


def test_only_steps_during_which_it_is_on_are_recorded(config: Config) -> None:
    config.write(dump_enable=False)
    debugger = PrecisionDebugger(config.path)
    step(debugger)
    config.write(dump_enable=True)
    step(debugger)
    step(debugger)
    config.write(dump_enable=False)
    step(debugger)
    debugger._finish()
    assert config.steps() == ["step1", "step2"]


def test_a_program_of_vllm_ascend_reloads_at_once(config: Config) -> None:
    config.write(dump_enable=False)
    debugger = PrecisionDebugger(str(config.path))
    assert not debugger._maybe_reload_config(force=True)
    config.write(dump_enable=True)
    assert debugger._maybe_reload_config(force=True)
    assert not debugger._maybe_reload_config()
    step(debugger)
    debugger._finish()
    assert config.steps() == ["step0"]


def test_turning_it_off_within_a_step_keeps_what_was_recorded(config: Config) -> None:
    config.write(dump_enable=True)
    debugger = PrecisionDebugger(config.path)
    debugger.start()
    torch.relu(torch.ones(2))
    config.write(dump_enable=False)
    debugger._maybe_reload_config(force=True)
    torch.tanh(torch.ones(2))
    debugger.stop()
    debugger.step()
    debugger._finish()
    (dump,) = config.dump_path.glob("step0/rank*/dump.json")
    assert [*json.loads(dump.read_text())["data"]] == ["Torch.relu.0.forward"]


def test_deleting_the_key_leaves_it_as_it_is(config: Config) -> None:
    config.write(dump_enable=False)
    debugger = PrecisionDebugger(config.path)
    config.write()
    step(debugger)
    debugger._finish()
    assert config.steps() == []


@pytest.mark.parametrize("text", ['{"dump_enable": ', '{"dump_enable": 1}', '{"dump_enabled": true}'])
def test_a_file_that_cannot_be_read_turns_it_off_and_is_named(
    config: Config, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    config.write(dump_enable=True)
    debugger = PrecisionDebugger(config.path)
    config.write_text(text)
    with caplog.at_level(logging.WARNING, "msprobe_hooks"):
        step(debugger)
    assert f"{config.path}: recording is off until the file can be read" in caplog.text
    config.write(dump_enable=True)
    step(debugger)
    debugger._finish()
    assert config.steps() == ["step1"]


def test_other_keys_that_change_are_said_not_to_be_followed(config: Config, caplog: pytest.LogCaptureFixture) -> None:
    config.write(dump_enable=True)
    debugger = PrecisionDebugger(config.path)
    config.write(dump_enable=True, level="L0")
    with caplog.at_level(logging.WARNING, "msprobe_hooks"):
        step(debugger)
    assert "of what has changed, dump_enable alone is followed" in caplog.text
    debugger._finish()
    assert config.steps() == ["step0"]


def test_without_the_key_the_file_is_read_once(config: Config) -> None:
    config.write()
    debugger = PrecisionDebugger(config.path)
    config.write(dump_enable=False)
    step(debugger)
    debugger._finish()
    assert config.steps() == ["step0"]


def test_a_value_that_is_neither_true_nor_false_is_refused(config: Config) -> None:
    config.write(dump_enable="yes")
    with pytest.raises(ConfigError, match="dump_enable is 'yes'; allowed: true or false"):
        PrecisionDebugger(config.path)


def test_a_variable_is_saved_while_it_is_on(config: Config) -> None:
    config.write(dump_enable=False, level="debug")
    debugger = PrecisionDebugger(config.path)
    debugger.save(torch.ones(2), "left out")
    debugger.step()
    config.write(dump_enable=True, level="debug")
    debugger._maybe_reload_config()
    debugger.save(torch.ones(2), "kept")
    debugger.step()
    debugger._finish()
    (file,) = config.dump_path.glob("step*/rank*/debug.json")
    assert "kept" in file.read_text()
    assert file.parent.parent.name == "step1"

"""Numbers of a watched training go to the loggers that the training has, by their own API."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from msprobe_hooks import watch
from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.monitor.watch.run_files import loggers
from tests.support.frameworks.started import PYTHON, VARIABLES
from tests.support.requirements import require

WEIGHT = "msprobe/0:weight/rank0/grad_reduced_norm"
OPTIONS: dict[str, Any] = {"what": ["gradients"], "statistics": ["norm"], "format": "api"}


def train(log_to: Any, steps: int = 3, **options: Any) -> list[tuple[int, float]]:
    """Watch a training and return each step with the norm of the weight's gradient, computed here."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    norms = []
    with watch(model, optimizer, log_to=log_to, **OPTIONS, **options):
        for step in range(steps):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            norms.append((step, model.weight.grad.double().square().sum().sqrt().item()))
            optimizer.step()
    return norms


def test_a_summary_writer_of_the_training_gets_the_numbers_of_each_collected_step(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        norms = train(writer, steps=5, every=2)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    found = [(event.step, event.value) for event in events.Scalars(WEIGHT)]
    assert [step for step, _ in found] == [0, 2, 4]
    assert [value for _, value in found] == pytest.approx([norms[step][1] for step in (0, 2, 4)], rel=1e-6)


def test_each_logger_of_a_list_gets_the_numbers(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path / "one") as one, SummaryWriter(tmp_path / "other") as other:
        train([one, other])
    for name in ("one", "other"):
        events = EventAccumulator(str(tmp_path / name))
        events.Reload()
        assert WEIGHT in events.Tags()["scalars"]


def test_a_logger_that_fails_is_named_in_the_log_and_does_not_end_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError("the disk is full")

    assert len(train(SimpleNamespace(add_scalar=full))) == 3
    assert "not monitored: numbers for a logger: OSError: the disk is full" in caplog.text


def test_a_rank_other_than_the_first_may_have_no_run(caplog: pytest.LogCaptureFixture) -> None:
    assert loggers(None, 1) == []
    assert "rank 1 has no run of a logger: its numbers are not logged" in caplog.text


@pytest.mark.parametrize("log_to", ["wandbb", 3, None, [None]], ids=str)
def test_what_is_no_logger_is_refused_and_leaves_no_hook(log_to: object) -> None:
    optimizer = torch.optim.SGD((model := nn.Linear(3, 2)).parameters(), lr=0.1)
    with pytest.raises(ConfigError, match=r"log_to is .*'wandb', 'mlflow', a SummaryWriter"):  # noqa: SIM117
        with watch(model, optimizer, log_to=log_to, **OPTIONS):
            pass
    assert not optimizer._optimizer_step_pre_hooks


def test_a_logger_that_is_not_installed_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match="pip install wandb"):
        train("wandb")


PROGRAM = """
import json
import mlflow
import wandb
from msprobe_hooks.errors import ConfigError
from tests.extensions.monitor.watch.test_loggers import WEIGHT, train

for name in ("wandb", "mlflow"):
    try:
        train(name)
    except ConfigError as error:
        print(error)
mlflow.set_tracking_uri("sqlite:///runs.db")
with wandb.init(project="training", mode="offline", dir=".") as run, mlflow.start_run() as active:
    norms = train(["wandb", "mlflow"])
    summary = dict(run.summary)
history = mlflow.MlflowClient().get_metric_history(active.info.run_id, WEIGHT)
found = {"mlflow": [(one.step, one.value) for one in history], "wandb": [summary["msprobe/step"], summary[WEIGHT]]}
print(json.dumps(found | {"norms": norms}))
"""


@pytest.mark.slow
@pytest.mark.nightly
def test_the_active_runs_of_wandb_and_mlflow_get_the_numbers(tmp_path: Path) -> None:
    require(PYTHON.exists(), ".venv-frameworks, which make nightly builds")
    ended = subprocess.run(
        [PYTHON, "-W", "ignore", "-c", PROGRAM],
        cwd=tmp_path,
        env=os.environ | VARIABLES,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    *refusals, found = ended.stdout.splitlines()
    assert [line.rpartition(": ")[2] for line in refusals if line.startswith("log_to")] == [
        "call wandb.init() before watch",
        "call mlflow.start_run() before watch",
    ]
    logged = json.loads(found)
    assert [step for step, _ in logged["mlflow"]] == [0, 1, 2]
    assert [value for _, value in logged["mlflow"]] == pytest.approx([norm for _, norm in logged["norms"]], rel=1e-9)
    assert logged["wandb"] == pytest.approx([2, logged["norms"][2][1]], rel=1e-9)

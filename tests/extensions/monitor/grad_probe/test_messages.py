"""What a probe says: of what it cannot write, look at or take, and at its end."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from msprobe_hooks import ConfigError, PrecisionDebugger
from tests.support.trainings.probing import Monitor, finish, model_of, names, parameter, sgd, table


def test_a_folder_that_cannot_be_written_is_reported_once_and_the_training_goes_on(
    monitor: Monitor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run").write_text("in the way")
    model = model_of(w=parameter(1.0))
    monitor(model)
    optimizer = sgd(model)
    for _ in range(2):
        optimizer.step()
    assert model.w.item() == pytest.approx(-0.2)
    assert caplog.text.count("gradients of a step are not written") == 1


def test_a_step_that_a_full_disk_cuts_off_has_no_summary(monitor: Monitor, caplog: pytest.LogCaptureFixture) -> None:
    model = model_of(w=parameter(1.0))
    rank, optimizer = monitor(model), sgd(model)
    (rank / "step0").mkdir(parents=True)
    (rank / "step0" / ".part").symlink_to("/dev/full")
    optimizer.step()
    assert [path.name for path in rank.rglob("*")] == ["step0"]
    assert "gradients of a step are not written: [Errno 28] No space left on device" in caplog.text
    optimizer.step()
    assert names(rank, 1) == ["w"]


def test_a_gradient_that_cannot_be_looked_at_costs_itself(monitor: Monitor, caplog: pytest.LogCaptureFixture) -> None:
    model = model_of(a=parameter(1.0), z=nn.Parameter(torch.zeros(1, dtype=torch.complex64)))
    model.z.grad = torch.ones(1, dtype=torch.complex64)
    rank = monitor(model)
    sgd(model).step()
    assert names(rank) == ["a"]
    assert "the gradient of z is left out: torch.strided of torch.complex64" in caplog.text


def test_a_former_run_is_overwritten_step_by_step_and_said_to_be(
    monitor: Monitor, caplog: pytest.LogCaptureFixture
) -> None:
    for value in (1.0, 2.0):
        model = model_of(w=parameter(value))
        rank = monitor(model)
        sgd(model).step()
        finish()
    assert [row["max"] for row in table(rank)] == ["2.0"]
    assert "holds 1 steps of an earlier run" in caplog.text


def test_names_in_param_list_that_the_model_lacks_are_reported(
    monitor: Monitor, caplog: pytest.LogCaptureFixture
) -> None:
    monitor(nn.Linear(1, 1), param_list=["weight", "wieght"])
    assert "not parameters of this model: wieght; did you mean 'weight'?" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (([nn.Linear(1, 1)],), r"model is .*; allowed: a torch\.nn\.Module"),
        ((nn.Linear(1, 1), "adam"), r"optimizer is 'adam'; allowed: a torch\.optim\.Optimizer"),
    ],
)
def test_what_is_no_model_or_optimizer_is_named(monitor: Monitor, arguments: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        monitor(*arguments)


def test_a_second_model_is_refused(monitor: Monitor) -> None:
    monitor(nn.Linear(1, 1))
    with pytest.raises(ConfigError, match=r"one model; combine several in a torch\.nn\.ModuleList"):
        PrecisionDebugger.monitor(nn.Linear(1, 1))


def test_starting_stopping_and_saving_change_nothing(monitor: Monitor, caplog: pytest.LogCaptureFixture) -> None:
    model = model_of(w=parameter(1.0))
    rank = monitor(model)
    PrecisionDebugger.start(model)
    PrecisionDebugger.save(torch.ones(1), "x")
    sgd(model).step()
    PrecisionDebugger.stop()
    PrecisionDebugger.step()
    assert names(rank) == ["w"]
    assert "save() records nothing with task grad_probe" in caplog.text


def test_the_end_says_what_was_written(monitor: Monitor, capsys: pytest.CaptureFixture[str]) -> None:
    model = model_of(w=parameter(1.0))
    rank = monitor(model)
    sgd(model).step()
    finish()
    assert capsys.readouterr().err == f"msprobe_hooks: gradients of 1 optimizer step are in {rank}\n"


def test_the_end_names_parameters_that_no_optimizer_steps(monitor: Monitor, capsys: pytest.CaptureFixture[str]) -> None:
    model = model_of(w=parameter(1.0), forgotten=parameter(1.0), frozen=parameter(1.0).requires_grad_(False))
    rank = monitor(model)
    torch.optim.SGD([model.w]).step()
    finish()
    end = f"gradients of 1 optimizer step are in {rank}, without those of forgotten, which no optimizer steps\n"
    assert capsys.readouterr().err == f"msprobe_hooks: {end}"


@pytest.mark.parametrize(
    ("trained", "section", "text"),
    [
        (
            nn.Linear(1, 1),
            {},
            "no optimizer of the monitored model's parameters was called (1 call of others)",
        ),
        (None, {"step": [5]}, "this rank or these steps are not configured"),
    ],
    ids=["other model", "other steps"],
)
def test_the_end_says_why_nothing_was_written(
    monitor: Monitor, capsys: pytest.CaptureFixture[str], trained: nn.Module | None, section: Any, text: str
) -> None:
    model = nn.Linear(1, 1)
    monitor(model, **section)
    sgd(trained or model).step()
    finish()
    assert text in capsys.readouterr().err
    assert not logging.getLogger("msprobe_hooks").disabled


def test_start_without_a_monitored_model_is_warned_about_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(finish)
    debugger = PrecisionDebugger(task="grad_probe", dump_path=tmp_path / "run")
    for _ in range(2):
        debugger.start(model_of(w=parameter(1.0)))
        debugger.stop()
        debugger.step()
    assert caplog.text.count("start() and stop() do nothing with task grad_probe") == 1

"""What follows from a culprit is counted, and is listed where the user asks for it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from msprobe_hooks import record


def train(folder: Path, *, stale: bool) -> None:
    """Record two steps of a training; ``stale`` leaves another value in one weight of the second layer."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
        model[2].weight[0, 0] += 0.5 * stale
    optimizer = torch.optim.SGD(model.parameters(), 0.1, foreach=False)
    with record(folder, level="mix", model=model) as session:
        for _ in range(2):
            inputs = torch.randn(8, 4, generator=generator)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), torch.zeros(8, 4)).backward()
            optimizer.step()
            session.step()


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Return the options that compare two trainings of which one began with another weight."""
    folder = tmp_path_factory.mktemp("trainings")
    train(folder / "target", stale=True)
    train(folder / "golden", stale=False)
    return f"--msprobe-compare={folder / 'target'}", f"--msprobe-golden={folder / 'golden'}"


def listed(result: pytest.RunResult) -> list[str]:
    return re.findall(r"^FAILED \S+::(\S+)", result.stdout.str(), re.MULTILINE)


def test_calls_that_inherited_their_error_are_counted_and_not_listed(
    pytester: pytest.Pytester, trainings: tuple[str, str]
) -> None:
    result = pytester.runpytest_inprocess(*trainings)
    names, failed = listed(result), result.parseoutcomes()["failed"]
    assert "Functional.linear.1.forward" in names
    assert "Functional.gelu.1.forward" not in names
    assert len(names) < failed / 2
    assert len(re.findall(r"is wrong in step", result.stdout.str())) == len(names)


@pytest.mark.parametrize("words", [["-v"], ["-rf"]])
def test_they_are_listed_where_the_user_asks_for_them(
    pytester: pytest.Pytester, trainings: tuple[str, str], words: list[str]
) -> None:
    result = pytester.runpytest_inprocess(*trainings, "--tb=no", *words)
    assert len(listed(result)) == result.parseoutcomes()["failed"]


def test_a_run_of_one_of_them_shows_it(pytester: pytest.Pytester, trainings: tuple[str, str]) -> None:
    target, golden = trainings
    item = f"{target}/step0/rank/dump.json::Functional.gelu.1.forward"
    result = pytester.runpytest_inprocess(item, golden)
    assert listed(result) == ["Functional.gelu.1.forward"]
    result.stdout.fnmatch_lines(["Functional.gelu.1.forward is wrong*"])


def test_backward_calls_are_said_to_differ_as_their_forward_calls_do(
    pytester: pytest.Pytester, trainings: tuple[str, str]
) -> None:
    shown = pytester.runpytest_inprocess(*trainings, "--tb=no").stdout
    shown.fnmatch_lines(
        ["step 0: backward calls differ as their forward calls do, first Functional.mse_loss.0.backward (*"]
    )
    shown.no_fnmatch_line("*first backward culprit*")


def test_a_later_step_is_said_to_begin_with_the_weights_of_a_wrong_one(
    pytester: pytest.Pytester, trainings: tuple[str, str]
) -> None:
    shown = pytester.runpytest_inprocess(*trainings, "--tb=no").stdout
    shown.fnmatch_lines(["step 0: first forward culprit: weight 2.weight differs *"])
    shown.fnmatch_lines(["step 1: begins with weights that differ since step 0: *"])
    shown.no_fnmatch_line("step 1: first forward culprit*")

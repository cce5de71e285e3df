"""``--msprobe-explore`` through pytest."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from typing import Any

import pytest
import safetensors.torch  # noqa: F401 - for the reason that torch is loaded in conftest.py

from pytest_msprobe.commands.main import main
from tests.support.runs import Checked

pytestmark = pytest.mark.slow

SOFTMAX = "Functional.softmax.0.forward"
NAN_LOST = "result = result.nan_to_num(0.0) if 'softmax' in record and torch.is_tensor(result) else result"
OPTIONS = ("--msprobe-device=faulty", "--msprobe-explore=30")


@pytest.fixture
def exploring(write_dump: Any, records: Any, make_device: Any, check: Any) -> Callable[..., Checked]:
    def run(*arguments: str, body: str = NAN_LOST) -> Checked:
        make_device(body)
        found: Checked = check("--msprobe-dump", write_dump(records), *OPTIONS, *arguments)
        return found

    return run


def test_an_explored_input_fails_the_item_and_says_that_the_recorded_one_passed(exploring: Any) -> None:
    checked = exploring()
    assert checked.wrong == {SOFTMAX}
    text = checked.cases[SOFTMAX].text
    assert "output.0 torch.float32 (1, 1): fail by benchmark" in text
    assert "The recorded input passes; of " in text
    assert "x = torch.tensor([[float('nan')]], dtype=torch.float32)" in text
    assert "result = torch.nn.functional.softmax(x, dim=-1)" in text
    assert "# wrong: output.0 is [[0.0]]" in text
    assert "# right: output.0 is [[nan]]" in text
    assert "inputs explored around 5 records" in checked.output


def test_a_recorded_input_that_fails_is_made_small(exploring: Any) -> None:
    text = exploring(body="result = result + 1 if 'softmax.0.forward' in record else result").cases[SOFTMAX].text
    assert "output.0 torch.float32 (4, 8): fail" in text
    assert "this one fails as well, and is smaller" in text
    assert "x = torch.tensor([[0.0]], dtype=torch.float32)" in text


def test_an_input_that_fails_once_is_said_to_pass_when_run_again(exploring: Any) -> None:
    once = """
self.runs = getattr(self, 'runs', 0) + (record == 'Functional.softmax.0.forward')
result = result + 1 if self.runs == 3 else result
"""
    checked = exploring(body=once)
    assert checked.wrong == {SOFTMAX}
    assert "the numbers above are its own; it passed when run again:" in checked.cases[SOFTMAX].text


def test_a_common_drift_is_said_not_to_be_searched_for(
    write_dump: Any, forward: Any, element: Any, make_device: Any, check: Any
) -> None:
    make_device("result = (result.double() * 1.004).to(result.dtype)")
    x = element(64, 256, dtype="bfloat16")
    records = {"Functional.glu.0.forward": forward(x, output=[element(64, 128, dtype="bfloat16")])}
    text = check("--msprobe-dump", write_dump(records), *OPTIONS).cases["Functional.glu.0.forward"].text
    assert "too large" in text
    assert "No smaller input was found: this one fails only by a drift" in text


def test_a_healthy_device_passes(exploring: Any) -> None:
    checked = exploring(body="")
    assert checked.exit_code == 0
    assert "inputs explored around 5 records" in checked.output


def test_the_found_input_is_saved_and_replayed(
    exploring: Any, pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    text = exploring("--msprobe-save-failures=kept").cases[SOFTMAX].text
    [case] = (pytester.path / "kept").glob("*/case.json")
    assert f"): {case.parent}" in text
    assert json.loads(case.read_text())["inputs"] == "explored"
    capsys.readouterr()
    assert main(["replay", str(case.parent), "--device", "cpu"]) == 0
    assert "it was fail by benchmark" in capsys.readouterr().out


def test_the_command_that_runs_the_item_again_explores_again(exploring: Any) -> None:
    assert "--msprobe-explore 30" in exploring().cases[SOFTMAX].text


@pytest.mark.nightly
def test_exploring_ends_before_the_item_s_time_does(exploring: Any) -> None:
    checked = exploring("--msprobe-timeout=10", "--msprobe-explore=1000000", "-k", "linear.0.forward", body="")
    assert checked.exit_code == 0, checked.output


def test_a_journal_knows_what_was_explored(exploring: Any) -> None:
    assert exploring("--msprobe-journal=run.jsonl", "-k", "linear", body="").exit_code == 0
    refused = exploring("--msprobe-resume=run.jsonl", "--msprobe-explore=31", body="")
    assert "explore 30, this run has 31" in refused.errors


@pytest.mark.nightly
def test_workers_explore(exploring: Any) -> None:
    assert exploring("-n2").wrong == {SOFTMAX}


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["--msprobe-explore=0"], "expected a positive number of inputs"),
        (["--msprobe-explore=many"], "expected a positive number of inputs"),
        (
            ["-omsprobe_explore_time=3"],
            "msprobe_explore_time has no effect without --msprobe-explore; pass --msprobe-explore N",
        ),
        (["--msprobe-explore=3", "-omsprobe_explore_time=-1"], "expected a positive number of seconds"),
        (["--msprobe-explore=3", "-omsprobe_explore_time=nan"], "expected a positive number of seconds"),
    ],
)
def test_a_wrong_option_is_one_usage_error(usage_error: Any, arguments: list[str], reported: str) -> None:
    assert reported in usage_error(*arguments)


def test_a_missing_extra_is_named(usage_error: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "hypothesis" else real(name))
    assert "pip install 'pytest-msprobe[explore]'" in usage_error("--msprobe-explore=3")

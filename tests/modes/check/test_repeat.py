"""``--msprobe-repeat`` through pytest."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch  # noqa: F401 - for the reason that torch is loaded in conftest.py

from pytest_msprobe.commands.main import main
from pytest_msprobe.journal import read_journal
from tests.support.dumps.dump_files import three_calls
from tests.support.replays.devices import UNSTEADY
from tests.support.runs import Checked

SOFTMAX = "Functional.softmax.0.forward"
LINEAR_ALGEBRA = Path(__file__).parents[2] / "data" / "verdict_quality" / "linear_algebra" / "dump.json"

OPTIONS = ("--msprobe-device=faulty", "--msprobe-dump=dump.json")


@pytest.fixture
def repeating(write_dump: Any, make_device: Any, check: Any) -> Callable[..., Checked]:
    def run(*arguments: str, body: str = UNSTEADY, **options: Any) -> Checked:
        make_device(body)
        write_dump(three_calls())
        found: Checked = check(*OPTIONS, *arguments, **options)
        return found

    return run


def test_a_call_that_differs_from_itself_fails_and_says_where_and_how_much(repeating: Any) -> None:
    checked = repeating("--msprobe-repeat=3")
    assert checked.wrong == {SOFTMAX}
    case = checked.cases[SOFTMAX]
    reported = "1 of 2 repeated runs differ from the first, in 1 of 32 elements (3.12 %) and by at most 9."
    assert case.text.startswith(f"output.0: nondeterministic: {reported}")
    assert "output.0 torch.float32 (4, 8): fail by determinism" in case.text
    assert case.properties["msprobe.standard"] == "determinism"
    assert case.properties["msprobe.nondeterministic"].startswith(f"output.0: {reported}")
    assert "5 run 3 times, 1 of them nondeterministic" in checked.output
    assert "1 Functional.softmax: up to 3.12 % of the elements, by at most 9." in checked.output
    [command] = [line for line in case.text.splitlines() if line.startswith("Run this item alone: ")]
    assert "--msprobe-repeat 3" in command


def test_too_few_runs_do_not_see_it_and_no_repeats_see_nothing(repeating: Any) -> None:
    assert "5 run 2 times, 0 of them nondeterministic" in repeating("--msprobe-repeat=2").output
    plain = repeating()
    assert plain.exit_code == 0
    assert "nondeterministic" not in plain.output


def test_a_healthy_device_agrees_with_itself(repeating: Any) -> None:
    checked = repeating("--msprobe-repeat=4", body="")
    assert checked.exit_code == 0
    assert "5 run 4 times, 0 of them nondeterministic" in checked.output


def test_what_the_policy_knows_is_reported_and_does_not_fail(repeating: Any, pytester: pytest.Pytester) -> None:
    known = "nondeterministic: [{apis: [softmax], backward: false, device: cpu}]\nrules: [{standard: benchmark}]\n"
    pytester.path.joinpath("ours.yaml").write_text(known)
    checked = repeating("--msprobe-repeat=3", "--msprobe-policy=ours.yaml")
    assert checked.exit_code == 0
    assert "% of the elements, by at most 9.53674e-07, known to the policy" in checked.output
    assert checked.cases[SOFTMAX].properties["msprobe.nondeterministic"].endswith(" (known to the policy)")


def test_least_squares_on_the_cpu_may_differ_from_themselves(check: Any) -> None:
    checked = check(f"--msprobe-dump={LINEAR_ALGEBRA}", "--msprobe-only=linalg.lstsq", "--msprobe-repeat=20")
    assert checked.exit_code == 0
    assert len(checked.cases) == 2


def test_a_wrong_call_stays_wrong_for_its_own_reason(repeating: Any) -> None:
    wrong = "result = result * 2 if record == 'Functional.softmax.0.forward' else result"
    text = repeating("--msprobe-repeat=3", body=f"{UNSTEADY}\n{wrong}").cases[SOFTMAX].text
    assert "output.0 torch.float32 (4, 8): fail by benchmark" in text
    assert "It is nondeterministic as well: output.0: 1 of 2 repeated runs differ" in text


def test_a_call_that_raises_when_it_is_run_again_fails(repeating: Any) -> None:
    body = UNSTEADY.replace("result = result + change", "raise RuntimeError('not again')")
    checked = repeating("--msprobe-repeat=3", body=body)
    assert checked.wrong == {SOFTMAX}
    assert "raises when it is run again: RuntimeError: not again" in checked.cases[SOFTMAX].text


def test_memory_that_runs_out_in_a_repeated_run_is_reported_as_such(repeating: Any) -> None:
    body = "global runs\nruns = globals().get('runs', 0) + ('softmax.0.f' in record)\nif runs > 1: raise MemoryError"
    checked = repeating("--msprobe-repeat=2", "--msprobe-only=softmax", body=body)
    assert checked.cases[SOFTMAX].properties["msprobe.breakdown"] == "oom"


def test_a_saved_case_holds_how_often_it_ran(repeating: Any, pytester: pytest.Pytester) -> None:
    repeating("--msprobe-repeat=3", "--msprobe-save-failures=kept")
    [case] = pytester.path.glob("kept/*/case.json")
    assert json.loads(case.read_text())["result"]["verdict"]["standard"] == "determinism"
    assert json.loads(case.read_text())["result"]["extras"]["repeats"]["times"] == 3


def test_a_journal_holds_it_and_is_not_resumed_without_it(repeating: Any, pytester: pytest.Pytester) -> None:
    repeating("--msprobe-repeat=3", "--msprobe-journal=run.jsonl")
    journal = read_journal(Path("run.jsonl"))
    assert journal.header.settings["repeat"] == "3"
    [failed] = [entry for entry in journal.entries.values() if entry.outcome == "fail"]
    assert shlex.split(journal.rerun_command(failed))[-2:] == ["--msprobe-repeat", "3"]
    assert main(["report", "run.jsonl", "--junit", "run.xml"]) == 0
    assert "msprobe.nondeterministic" in Path("run.xml").read_text()
    resumed = repeating("--msprobe-resume=run.jsonl")
    assert resumed.exit_code == pytest.ExitCode.USAGE_ERROR
    assert "repeat" in resumed.errors


@pytest.mark.parametrize("number", ["0", "1", "-3", "2.5", "often"])
def test_a_number_of_runs_that_makes_no_sense_is_one_error(repeating: Any, number: str) -> None:
    checked = repeating(f"--msprobe-repeat={number}")
    assert checked.exit_code == pytest.ExitCode.USAGE_ERROR
    assert checked.errors.strip() == f"ERROR: --msprobe-repeat '{number}': expected a number of runs, 2 or more"


def test_addopts_of_the_ini_file_repeat_calls(repeating: Any, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\naddopts = --msprobe-repeat=3\n")
    assert repeating().wrong == {SOFTMAX}


def test_other_kinds_of_run_refuse_what_is_about_checks(pytester: pytest.Pytester, write_dump: Any) -> None:
    write_dump(three_calls())
    result = pytester.runpytest_inprocess("--msprobe-compare=dump.json", "--msprobe-golden=.", "--msprobe-repeat=3")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    expected = "ERROR: --msprobe-repeat does not work with --msprobe-compare; remove --msprobe-repeat"
    assert result.stderr.str().strip() == expected

"""``--msprobe-perturb`` through pytest."""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from msprobe_hooks.extensions.free_benchmark.config import PERTURBATIONS
from pytest_msprobe.commands.main import main
from pytest_msprobe.installed_extensions import extensions
from pytest_msprobe.journal import read_journal
from tests.support.dumps.dump_files import three_calls
from tests.support.runs import Checked

SOFTMAX, SOFTMAX_BACKWARD = "Functional.softmax.0.forward", "Functional.softmax.0.backward"
HEADER = ["rank", "pert_mode", "stage", "step", "api_name", "max_rel", "dtype", "shape", "output_index"]

# Every run of the call gives twice of what the one before gave.
DOUBLING = """
global factor
if record == 'Functional.softmax.0.forward':
    factor = globals().get('factor', 0.5) * 2
    result = result * factor
"""


@pytest.fixture
def perturbing(write_dump: Any, make_device: Any, check: Any) -> Callable[..., Checked]:
    def run(*arguments: str, body: str = "", **options: Any) -> Checked:
        make_device(body)
        write_dump(three_calls(), "step2/rank3")
        fixed = ("--msprobe-device=faulty", "--msprobe-dump=step2", "-Wdefault")
        found: Checked = check(*fixed, *arguments, **options)
        return found

    return run


def table(folder: str = "tables") -> list[list[str]]:
    with Path(folder, "free_benchmark.csv").open(newline="") as file:
        return list(csv.reader(file))


def result_table() -> list[list[str]]:
    [path] = Path("tables").glob("accuracy_checking_result_*.csv")
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_a_result_that_changes_too_much_is_a_warning_with_ratio_and_threshold(perturbing: Any) -> None:
    checked = perturbing("--msprobe-perturb=add_noise", "--msprobe-csv=tables", body=DOUBLING)
    assert checked.exit_code == 0
    reported = (
        "perturbed by add_noise, the result changes by a ratio of 2, where 1.0002 is allowed; "
        "a second run that is not perturbed differs as well"
    )
    assert reported in checked.output
    properties = checked.cases[SOFTMAX].properties
    assert (properties["msprobe.verdict"], properties["msprobe.standard"]) == ("warn", "benchmark")
    assert properties["msprobe.perturbed"] == reported
    assert "4 perturbed by add_noise, 2 of them changed too much\n  2 Functional.softmax" in checked.output
    assert "1 not perturbed: no float tensor in the first positional tensor, list, tuple or dict" in checked.output
    assert re.search(r"^msprobe table: \S*tables/free_benchmark\.csv$", checked.output, re.MULTILINE)
    # Its gradient is that of the first run, and of the fourth: the third one was not perturbed.
    assert table() == [
        HEADER,
        ["3", "add_noise", "forward", "2", SOFTMAX, "1.0", "torch.float32", "torch.Size([4, 8])", ""],
        ["3", "add_noise", "backward", "2", SOFTMAX_BACKWARD, "7.0", "torch.float32", "torch.Size([4, 8])", "0"],
    ]


def test_perturbed_inputs_leave_what_is_reported_for_the_accuracy_as_it_is(perturbing: Any) -> None:
    plain = perturbing(body=DOUBLING)
    checked = perturbing("--msprobe-perturb=no_change", "--msprobe-csv=tables", body=DOUBLING)
    assert plain.cases[SOFTMAX].properties["msprobe.verdict"] == "pass"
    for name in ("msprobe.standard", "msprobe.margin"):
        assert checked.cases[SOFTMAX].properties[name] == plain.cases[SOFTMAX].properties[name]
    [row] = [row for row in result_table() if row[0] == "Functional.softmax.0"]
    assert row[1:3] == ["pass", "pass"]
    assert row[3].startswith("perturbed by no_change, the result changes by a ratio of 2")


def test_an_earlier_warning_keeps_its_reason(write_dump: Any, check: Any, always_warns: list[str]) -> None:
    write_dump(three_calls())
    checked = check("--msprobe-dump=dump.json", "--msprobe-perturb=change_value", "-Wdefault", *always_warns)
    assert checked.cases[SOFTMAX].properties["msprobe.standard"] == "doubtful"
    assert f"{SOFTMAX}: worth a look; perturbed by change_value, the result changes by a ratio of" in checked.output


def test_who_turns_warnings_into_errors_has_failures(perturbing: Any) -> None:
    error = "-Werror::pytest_msprobe.run.item.PrecisionWarning"
    assert perturbing("--msprobe-perturb=no_change", error, body=DOUBLING).wrong == {SOFTMAX, SOFTMAX_BACKWARD}


def test_a_wrong_call_stays_wrong_for_its_own_reason(perturbing: Any) -> None:
    text = perturbing("--msprobe-perturb=no_change", body=f"{DOUBLING}    result = result + factor").cases[SOFTMAX].text
    assert "output.0 torch.float32 (4, 8): fail by benchmark" in text
    assert "It is sensitive as well: perturbed by no_change, the result changes by a ratio of" in text


@pytest.mark.parametrize("name", ["no_change", "add_noise", "improve_precision"])
def test_a_healthy_device_does_not_change_and_has_no_table(perturbing: Any, name: str) -> None:
    checked = perturbing(f"--msprobe-perturb={name}", "--msprobe-csv=tables")
    assert {case.properties["msprobe.verdict"] for case in checked.cases.values()} == {"pass"}
    assert not Path("tables", "free_benchmark.csv").exists()


@pytest.mark.slow
def test_workers_share_the_table_and_every_item_is_repeated_and_perturbed(perturbing: Any) -> None:
    options = ("--msprobe-perturb=change_value", "--msprobe-repeat=2", "--msprobe-csv=tables", "-n2")
    checked = perturbing(*options, apart=True)
    assert checked.exit_code == 0
    header, *rows = table()
    assert header == HEADER
    warned = {name for name, found in checked.cases.items() if found.properties["msprobe.verdict"] == "warn"}
    assert {row[4] for row in rows} == warned
    assert len(warned) >= 3
    assert "5 run 2 times, 0 of them nondeterministic" in checked.output


def test_a_table_holds_the_last_run(perturbing: Any) -> None:
    for _ in range(2):
        perturbing("--msprobe-perturb=no_change", "--msprobe-csv=tables", body=DOUBLING)
    assert [row[4] for row in table()] == ["api_name", SOFTMAX, SOFTMAX_BACKWARD]
    perturbing("--msprobe-perturb=no_change", "--msprobe-csv=tables")
    assert table() == [HEADER]


def test_a_resumed_run_has_the_rows_of_the_run_before(perturbing: Any) -> None:
    options = ("--msprobe-perturb=no_change", "--msprobe-csv=tables")
    perturbing(*options, "--msprobe-journal=run.jsonl", f"--deselect=step2/rank3/dump.json::{SOFTMAX}", body=DOUBLING)
    assert [row[4] for row in table()] == ["api_name", SOFTMAX_BACKWARD]
    perturbing(*options, "--msprobe-resume=run.jsonl", body=DOUBLING)
    assert [row[4] for row in table()] == ["api_name", SOFTMAX_BACKWARD, SOFTMAX]


def test_a_journal_is_made_into_the_same_table_and_not_resumed_without_the_option(perturbing: Any) -> None:
    options = ("--msprobe-perturb=no_change", "--msprobe-csv=tables", "--msprobe-journal=run.jsonl")
    perturbing(*options, body=DOUBLING.replace("globals().get('factor', 0.5) * 2", "-globals().get('factor', -1)"))
    assert table()[1][5] == "symbol_flipping"
    journal = read_journal(Path("run.jsonl"))
    entry = next(iter(journal.entries.values()))
    assert shlex.split(journal.rerun_command(entry))[-2:] == ["--msprobe-perturb", "no_change"]
    assert main(["report", "run.jsonl", "--csv", "again", "--junit", "run.xml"]) == 0
    assert table("again") == table()
    assert "perturbed by no_change, the result changes its sign" in Path("run.xml").read_text()
    resumed = perturbing("--msprobe-resume=run.jsonl", "--msprobe-perturb=add_noise")
    assert resumed.exit_code == pytest.ExitCode.USAGE_ERROR
    assert "perturb" in resumed.errors


def test_a_folder_that_cannot_be_written_ends_the_run_as_incomplete(perturbing: Any) -> None:
    Path("tables", "free_benchmark.csv").mkdir(parents=True)
    checked = perturbing("--msprobe-perturb=no_change", "--msprobe-csv=tables", body=DOUBLING)
    assert checked.exit_code == pytest.ExitCode.INTERNAL_ERROR
    assert "ERROR: free_benchmark.csv: " in checked.output


def test_an_unknown_perturbation_is_one_error_that_says_what_is_allowed(perturbing: Any) -> None:
    checked = perturbing("--msprobe-perturb=fix")
    assert checked.exit_code == pytest.ExitCode.USAGE_ERROR
    expected = f"ERROR: --msprobe-perturb 'fix': not one of {', '.join(PERTURBATIONS)}"
    assert checked.errors.strip() == expected


MODES = [["--msprobe-compare=dump.json", "--msprobe-golden=."]]
if "overflow" in extensions():
    MODES.append(["--msprobe-overflow=dump.json"])


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode[0])
def test_other_kinds_of_run_refuse_to_perturb(pytester: pytest.Pytester, write_dump: Any, mode: list[str]) -> None:
    write_dump(three_calls())
    result = pytester.runpytest_inprocess(*mode, "--msprobe-perturb=add_noise")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    flag = mode[0].partition("=")[0]
    expected = f"ERROR: --msprobe-perturb does not work with {flag}; remove --msprobe-perturb"
    assert result.stderr.str().strip() == expected

"""Runs that go on with a journal: what is checked again, and what the whole run then says."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.journal import read_journal
from tests.support.conftests import device_after_each_call

pytestmark = pytest.mark.slow

DUMP = Path(__file__).parents[1] / "data" / "dumps" / "lstm-mix" / "dump.json"

CRASHING_DEVICE = device_after_each_call(
    """
if record == "Functional.linear.1.forward" and not Path("repaired").exists():
    os._exit(1)
""",
    name="crashing",
)


@pytest.mark.nightly
def test_a_resumed_run_checks_what_is_missing_and_what_is_asked_for_again(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CRASHING_DEVICE)
    base = ["--msprobe-device", "crashing", "--msprobe-dump", str(DUMP), "-k", "linear or embedding"]
    pytester.runpytest_subprocess(*base, "-n", "1", "--msprobe-journal", "run.jsonl")
    first = read_journal(pytester.path / "run.jsonl").entries
    crashed = [item.result.record for item in first.values() if item.outcome == "crash"]
    assert crashed == ["Functional.linear.1.forward"]

    pytester.path.joinpath("repaired").touch()
    resumed = pytester.runpytest_subprocess(
        *base, "-n", "1", "--msprobe-resume", "run.jsonl", "--msprobe-rerun", "crash"
    )
    assert resumed.parseoutcomes()["passed"] == 1
    last = read_journal(pytester.path / "run.jsonl").entries
    assert last.keys() == first.keys()
    assert {item.outcome for item in last.values()} == {"pass", "skip"}


def test_a_run_that_was_killed_is_resumed_without_losing_or_doubling_an_item(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CRASHING_DEVICE)
    base = ["--msprobe-device", "crashing", "--msprobe-dump", str(DUMP), "-k", "linear or embedding"]
    pytester.runpytest_subprocess(*base, "--msprobe-journal", "run.jsonl")
    path = pytester.path / "run.jsonl"
    before = list(read_journal(path).entries)
    assert before
    pytester.path.joinpath("repaired").touch()
    pytester.runpytest_subprocess(*base, "--msprobe-resume", "run.jsonl")
    lines = [line for line in path.read_text().splitlines() if '"line":"item"' in line]
    assert len(lines) == len(read_journal(path).entries) > len(before)


@pytest.fixture
def resumed(pytester: pytest.Pytester, write_dump: Any, element: Any, forward: Any, make_device: Any) -> Path:
    """Resume a run in which one call was wrong and one unknown, and return the folder of its files."""
    make_device('if record == "Torch.abs.0.forward":\n    result += 1')
    names = ("Torch.abs.0", "Torch.no_such_api.0", "Torch.exp.0")
    write_dump({f"{name}.forward": forward(element(4, 8)) for name in names})
    base = ["--msprobe-device=faulty", "--msprobe-dump=dump.json", "--msprobe-csv=out"]
    first = pytester.runpytest_inprocess(*base, "-k", "abs or no_such_api", "--msprobe-journal=run.jsonl")
    assert first.ret == 1
    shutil.rmtree(pytester.path / "out")
    again = pytester.runpytest_inprocess(*base, "--msprobe-resume=run.jsonl", "--junitxml=report.xml")
    again.assert_outcomes(passed=1, deselected=2)
    return pytester.path


def test_the_junit_file_of_a_resumed_run_is_that_of_the_whole(resumed: Path) -> None:
    suite = ET.parse(resumed / "report.xml").getroot()[0]
    assert {key: suite.attrib[key] for key in ("tests", "failures", "skipped")} == {
        "tests": "3",
        "failures": "1",
        "skipped": "1",
    }
    cases = {case.attrib["name"]: case for case in suite}
    wrong, right = cases["Torch.abs.0.forward"], cases["Torch.exp.0.forward"]
    assert "Torch.abs.0.forward is wrong on faulty:0" in (wrong[1].text or "")
    assert "Run this item alone: pytest --msprobe-dump=" in (wrong[1].text or "")
    assert cases["Torch.no_such_api.0.forward"][1].attrib["message"].startswith("this torch has no such API")
    assert [{entry.attrib["name"] for entry in case.iter("property")} for case in (wrong, right)] == [
        {f"msprobe.{name}" for name in ("verdict", "standard", "margin", "device", "math_modes", "seed")}
    ] * 2
    assert wrong.attrib["classname"] == right.attrib["classname"]


def test_the_tables_of_a_resumed_run_are_those_of_the_whole(resumed: Path) -> None:
    (table,) = (resumed / "out").glob("accuracy_checking_result_*.csv")
    rows = [line.split(",")[:2] for line in table.read_text(encoding="utf-8-sig").splitlines()[1:]]
    assert rows == [["Torch.abs.0", "error"], ["Torch.no_such_api.0", "SKIP"], ["Torch.exp.0", "pass"]]


@pytest.mark.nightly
@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["alone", "workers"])
def test_a_run_that_finds_everything_finished_ends_as_if_it_had_run(
    pytester: pytest.Pytester, workers: list[str]
) -> None:
    base = ["--msprobe-device=cpu", f"--msprobe-dump={DUMP}", "-k", "embedding", *workers]
    assert pytester.runpytest_subprocess(*base, "--msprobe-journal=run.jsonl").ret == 0
    again = pytester.runpytest_subprocess(*base, "--msprobe-resume=run.jsonl")
    assert again.ret == pytest.ExitCode.OK
    again.stdout.fnmatch_lines(
        ["0 API records: nothing left", "2 finished before: 2 passed", "2 in all: 2 passed"], consecutive=True
    )


@pytest.mark.nightly
@pytest.mark.parametrize("workers", [[], ["-n1"]], ids=["alone", "workers"])
def test_a_failure_that_finished_before_fails_the_resumed_run_until_it_is_run_again(
    pytester: pytest.Pytester, workers: list[str]
) -> None:
    pytester.makeconftest(CRASHING_DEVICE)
    base = ["--msprobe-device=crashing", f"--msprobe-dump={DUMP}", "-k", "linear", *workers]
    assert pytester.runpytest_subprocess(*base, "-n1", "--msprobe-journal=run.jsonl").ret == 1
    pytester.path.joinpath("repaired").touch()

    again = pytester.runpytest_subprocess(*base, "--msprobe-resume=run.jsonl")
    assert again.ret == pytest.ExitCode.TESTS_FAILED
    again.stdout.fnmatch_lines(
        ["* finished before: *1 failed* (1 crash); --msprobe-rerun crash checks these again"], consecutive=True
    )
    assert pytester.runpytest_subprocess(*base, "--msprobe-resume=run.jsonl", "--msprobe-rerun=crash").ret == 0


def test_what_finished_but_is_not_chosen_does_not_count(pytester: pytest.Pytester) -> None:
    base = ["--msprobe-device=cpu", f"--msprobe-dump={DUMP}"]
    assert pytester.runpytest_inprocess(*base, "-k", "embedding", "--msprobe-journal=run.jsonl").ret == 0
    other = pytester.runpytest_inprocess(*base, "-k", "no_such_name", "--msprobe-resume=run.jsonl")
    assert other.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "finished before" not in other.stdout.str()


def test_a_resumed_run_says_where_its_math_modes_are_others(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = ["--msprobe-device=cpu", f"--msprobe-dump={DUMP}"]
    pytester.runpytest_inprocess(*base, "-k", "embedding", "--msprobe-journal=run.jsonl")
    same = pytester.runpytest_inprocess(*base, "-k", "embedding or linear.1", "--msprobe-resume=run.jsonl")
    assert "other math modes" not in same.stdout.str()
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    other = pytester.runpytest_inprocess(*base, "-k", "embedding or linear", "--msprobe-resume=run.jsonl")
    other.stdout.fnmatch_lines(["*ran under other math modes; now: NVIDIA_TF32_OVERRIDE 1"])


def test_to_list_what_is_left_is_no_run(pytester: pytest.Pytester) -> None:
    base = ["--msprobe-device=cpu", f"--msprobe-dump={DUMP}"]
    pytester.runpytest_inprocess(*base, "-k", "embedding", "--msprobe-journal=run.jsonl")
    listed = pytester.runpytest_inprocess(*base, "--msprobe-resume=run.jsonl", "--collect-only", "-q")
    assert "finished before" not in listed.stdout.str()
    assert "Functional.embedding.0.forward" not in listed.stdout.str()

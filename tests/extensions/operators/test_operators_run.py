"""``pytest --msprobe-operators``: operators are recorded once and checked as any dump."""

from __future__ import annotations

from pathlib import Path

import pytest

OWN = """
operators:
  torch.softmax:
    samples: [{args: [{shape: [3, 4]}, -1]}]
  torch.tanh:
    samples: [{args: [{shape: [5]}]}]
"""
FAULTY = """
import torch
from pytest_msprobe.devices.sim import SimDevice

class Faulty(SimDevice):
    name = "faulty"

    def call(self, func, args, kwargs, *, record):
        result = super().call(func, args, kwargs, record=record)
        return result * 1.1 if record == "Torch.tanh.0.forward" else result

def pytest_msprobe_register_devices(registry):
    registry.add(Faulty())
"""
SETTINGS = ("-o", "msprobe_operator_files=own.yaml", "--msprobe-device=cpu")
WITHOUT_EXPECTTEST = 'raise ModuleNotFoundError("No module named expecttest", name="expecttest")'


@pytest.fixture(autouse=True)
def own_operators(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]")
    pytester.path.joinpath("own.yaml").write_text(OWN)


def dumps(pytester: pytest.Pytester) -> list[Path]:
    return sorted(pytester.path.rglob("dump.json"))


def test_operators_are_recorded_in_each_dtype_and_checked(pytester: pytest.Pytester) -> None:
    done = pytester.runpytest_inprocess("--msprobe-operators=float32,bfloat16", *SETTINGS)
    done.assert_outcomes(passed=8)
    done.stdout.fnmatch_lines(
        [
            "msprobe: 2 calls of 2 operators in float32, 0 refused by torch",
            "msprobe: 2 calls of 2 operators in bfloat16, 0 refused by torch",
        ]
    )


@pytest.mark.slow
def test_a_wrong_operator_fails_and_the_command_of_its_failure_finds_it_again(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(FAULTY)
    words = ("--msprobe-operators=float32", *SETTINGS[:2], "--msprobe-device=faulty")
    failed = pytester.runpytest_inprocess(*words)
    failed.assert_outcomes(passed=2, failed=2)
    record = f"--msprobe-dump={dumps(pytester)[0]}::Torch.tanh.0.forward"
    again = pytester.runpytest_inprocess(record, "--msprobe-device=faulty")
    again.assert_outcomes(failed=1)


@pytest.mark.slow
def test_what_was_recorded_is_not_recorded_again(pytester: pytest.Pytester) -> None:
    pytester.runpytest_inprocess("--msprobe-operators=float32", *SETTINGS)
    (dump,) = dumps(pytester)
    before = dump.stat().st_mtime_ns
    pytester.runpytest_inprocess("--msprobe-operators=float32", *SETTINGS).assert_outcomes(passed=4)
    assert dumps(pytester) == [dump]
    assert dump.stat().st_mtime_ns == before


@pytest.mark.slow
def test_a_file_that_has_changed_is_recorded_anew(pytester: pytest.Pytester) -> None:
    pytester.runpytest_inprocess("--msprobe-operators=float32", *SETTINGS)
    pytester.path.joinpath("own.yaml").write_text(OWN + "  torch.exp:\n    samples: [{args: [{shape: [2]}]}]\n")
    pytester.runpytest_inprocess("--msprobe-operators=float32", *SETTINGS).assert_outcomes(passed=6)


@pytest.mark.slow
def test_a_run_without_a_cache_leaves_nothing(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = pytester.mkdir("temporary")
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    done = pytester.runpytest_inprocess("--msprobe-operators=float32", *SETTINGS, "-p", "no:cacheprovider")
    done.assert_outcomes(passed=4)
    assert [path.name for path in temporary.iterdir() if path.name.startswith("msprobe-operators")] == []
    assert dumps(pytester) == []


@pytest.mark.slow
def test_a_killed_run_is_resumed_by_its_journal(pytester: pytest.Pytester) -> None:
    journal = pytester.path / "run.jsonl"
    words = ("--msprobe-operators=float32", *SETTINGS)
    pytester.runpytest_inprocess(*words, "--msprobe-journal=run.jsonl")
    lines = journal.read_text().splitlines(keepends=True)
    items = [number for number, line in enumerate(lines) if '"line":"item"' in line]
    journal.write_text("".join(lines[: items[1] + 1]) + lines[items[2]][:20])
    resumed = pytester.runpytest_inprocess(*words, "--msprobe-resume=run.jsonl")
    resumed.assert_outcomes(passed=2)
    resumed.stdout.fnmatch_lines(["4 in all: 4 passed"])


@pytest.mark.slow
def test_workers_check_what_the_controller_has_recorded(pytester: pytest.Pytester) -> None:
    done = pytester.runpytest_subprocess("--msprobe-operators=float32", *SETTINGS, "-n", "2")
    done.assert_outcomes(passed=4)
    assert len(dumps(pytester)) == 1


@pytest.mark.slow
def test_workers_check_it_without_a_cache(pytester: pytest.Pytester) -> None:
    words = ("--msprobe-operators=float32", *SETTINGS, "-n", "2", "-p", "no:cacheprovider")
    pytester.runpytest_subprocess(*words).assert_outcomes(passed=4)


def test_an_unknown_dtype_has_the_one_that_was_probably_meant(pytester: pytest.Pytester) -> None:
    done = pytester.runpytest_inprocess("--msprobe-operators=bfloat61", *SETTINGS)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: --msprobe-operators: dtype 'bfloat61': not one of *; did you mean 'bfloat16'?"])


def test_another_kind_of_run_is_refused(pytester: pytest.Pytester) -> None:
    pytester.makefile(".json", golden="{}")
    words = ("--msprobe-operators=float32", *SETTINGS, "--msprobe-compare=golden.json", "--msprobe-golden=golden.json")
    done = pytester.runpytest_inprocess(*words)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: --msprobe-dump and --msprobe-compare cannot be combined*"])


@pytest.mark.slow
def test_without_expecttest_the_extra_is_named(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    shadow = pytester.mkdir("shadow")
    shadow.joinpath("expecttest.py").write_text(WITHOUT_EXPECTTEST)
    monkeypatch.setenv("PYTHONPATH", str(shadow), prepend=":")
    done = pytester.runpytest_inprocess("--msprobe-operators=float32")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(
        [
            "ERROR: --msprobe-operators float32: torch's database of operators needs expecttest; pip install "
            "'pytest-msprobe[[]operators]'"
        ]
    )


@pytest.mark.slow
def test_a_database_that_cannot_be_imported_is_one_line(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    shadow = pytester.mkdir("shadow")
    shadow.joinpath("expecttest.py").write_text('raise RuntimeError("made for another torch")')
    monkeypatch.setenv("PYTHONPATH", str(shadow), prepend=":")
    done = pytester.runpytest_inprocess("--msprobe-operators=float32")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: --msprobe-operators float32: the database of operators of torch * cannot be*"])


def test_a_recording_that_dies_is_named_with_its_signal(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.path.joinpath("own.yaml").write_text(f"import: [dies]\n{OWN}")
    pytester.path.joinpath("dies.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    monkeypatch.setenv("PYTHONPATH", str(pytester.path), prepend=":")
    done = pytester.runpytest_inprocess("--msprobe-operators=float32", *SETTINGS)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: --msprobe-operators float32: *(the recording died of signal 11)"])
    assert dumps(pytester) == []

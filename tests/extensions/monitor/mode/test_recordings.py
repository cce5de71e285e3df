"""Recorded statistics judged as a monitored run is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.dumps.dump_files import forward, tensor_around, write_dump

STEPS = 20


def record(folder: Path, *, from_step: int = STEPS, factor: float = 1.0, extra_from: int = STEPS) -> None:
    """Write two ranks; on rank 1 the second layer is larger from a step on, and a call is new from another."""
    for step in range(STEPS):
        for rank in range(2):
            records = {"Functional.gelu.0.forward": forward(tensor_around(3))}
            for layer in range(3):
                is_faulty = rank == 1 and layer == 1 and step >= from_step
                x = tensor_around(3, at=(1.0 + 0.01 * step) * (factor if is_faulty else 1.0))
                records[f"Module.layers.{layer}.Linear.forward.0"] = forward(x)
            if rank == 1 and step >= extra_from:
                records["Functional.relu.0.forward"] = forward(tensor_around(3))
            write_dump(folder / f"step{step}/rank{rank}", records, level="mix")


def test_two_recordings_are_compared_over_steps_and_ranks(pytester: pytest.Pytester) -> None:
    record(pytester.path / "target", from_step=12, factor=1.5)
    record(pytester.path / "golden")
    result = pytester.runpytest("--msprobe-monitor=target", "--msprobe-golden=golden", "-p", "no:cacheprovider")
    result.assert_outcomes(failed=8, passed=56)
    result.stdout.fnmatch_lines(["*first*step 12*rank 1*forward/Module.layers.1.Linear.input.0/*"])


def test_a_series_that_only_one_recording_has_begins_where_it_does(pytester: pytest.Pytester) -> None:
    record(pytester.path / "target", extra_from=7)
    record(pytester.path / "golden")
    result = pytester.runpytest("--msprobe-monitor=target", "--msprobe-golden=golden", "-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(["*step 7*rank 1*Functional.relu.0.input.0*"])


def test_one_series_of_a_rank_is_judged_again_by_its_id(pytester: pytest.Pytester) -> None:
    record(pytester.path / "target", from_step=12, factor=float("nan"))
    series = "target/step0/rank1/dump.json::forward/Module.layers.1.Linear.input.0/norm"
    result = pytester.runpytest(f"--msprobe-monitor={series}", "-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)


def test_series_of_one_step_are_said_to_have_no_changes_to_judge(pytester: pytest.Pytester) -> None:
    write_dump(pytester.path / "run/step0/rank", {"Functional.gelu.0.forward": forward(tensor_around(3))})
    result = pytester.runpytest("--msprobe-monitor=run", "-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(["8 of 8 series have one step: rules on changes from step to step judged nothing *"])
    record(pytester.path / "steps")
    result = pytester.runpytest("--msprobe-monitor=steps", "-p", "no:cacheprovider")
    result.stdout.no_fnmatch_line("*have one step*")
